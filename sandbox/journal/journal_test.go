package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

type args struct {
	Path string `json:"path"`
}

func newJournal(t *testing.T) Journal {
	return At(filepath.Join(t.TempDir(), "journal"))
}

func (j Journal) add(t *testing.T, kind, path string) string {
	t.Helper()
	id, err := j.Before(t.Context(), kind, args{path}, atomicfile.Durable)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (j Journal) kinds(t *testing.T) []string {
	t.Helper()
	entries, err := j.Pending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{}
	for _, e := range entries {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestJournal(t *testing.T) {
	j := newJournal(t)
	if diff := cmp.Diff([]string{}, j.kinds(t)); diff != "" {
		t.Error(diff)
	}
	j.add(t, "netns", "/a")
	done := j.add(t, "process", "/b")
	j.add(t, "cgroup", "/c")
	if err := j.Done(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"netns", "cgroup"}, j.kinds(t)); diff != "" {
		t.Error(diff)
	}
	if err := j.Remove(t.Context()); !errors.Is(err, errPending) {
		t.Errorf("a journal with entries was removed: %v", err)
	}
}

// TestUndo: undos run newest first. A failed one stays for the next attempt and does not stop the others.
func TestUndo(t *testing.T) {
	j := newJournal(t)
	for _, e := range [][2]string{{"a", "/1"}, {"b", "/2"}, {"a", "/3"}, {"strange", "/4"}} {
		j.add(t, e[0], e[1])
	}
	var order []string
	boom := errors.New("boom")
	failing := true
	h := Handlers{
		"a": func(_ context.Context, raw json.RawMessage) error {
			var a args
			if err := json.Unmarshal(raw, &a); err != nil {
				return err
			}
			order = append(order, a.Path)
			return nil
		},
		"b": func(context.Context, json.RawMessage) error {
			if failing {
				return boom
			}
			order = append(order, "b")
			return nil
		},
	}
	err := j.Undo(t.Context(), h)
	if !errors.Is(err, boom) || !errors.Is(err, errUnknownKind) {
		t.Errorf("undo: %v", err)
	}
	if diff := cmp.Diff([]string{"/3", "/1"}, order); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"b", "strange"}, j.kinds(t)); diff != "" {
		t.Error(diff)
	}
	failing = false
	h["strange"] = h["b"]
	if err := j.Undo(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if err := j.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if err := j.Remove(t.Context()); err != nil {
		t.Errorf("second remove: %v", err)
	}
}

// TestTornLine: after a cut at any byte, the entries before the cut are there, and new ones can be added.
func TestTornLine(t *testing.T) {
	j := newJournal(t)
	j.add(t, "first", "/1")
	j.add(t, "second", "/2")
	whole, err := os.ReadFile(j.path)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.IndexByte(string(whole), '\n') + 1
	for n := range whole {
		os.WriteFile(j.path, whole[:n], 0o600)
		want := []string{}
		if n >= first {
			want = append(want, "first")
		}
		if diff := cmp.Diff(want, j.kinds(t)); diff != "" {
			t.Fatalf("cut at %d: %s", n, diff)
		}
		j.add(t, "third", "/3")
		if diff := cmp.Diff(append(want, "third"), j.kinds(t)); diff != "" {
			t.Fatalf("cut at %d and added to: %s", n, diff)
		}
	}
	// A power failure can leave a tail of zeros in a growing file.
	os.WriteFile(j.path, append(append([]byte{}, whole[:first]...), make([]byte, 4096)...), 0o600)
	if diff := cmp.Diff([]string{"first"}, j.kinds(t)); diff != "" {
		t.Error(diff)
	}
}

func TestDamage(t *testing.T) {
	for name, text := range map[string]string{
		"garbage":         "{\"id\":\"a\",\"kind\":\"k\",\"at\":\"2026-01-01T00:00:00Z\"}\nxx\n",
		"garbage first":   "xx\n{\"id\":\"a\",\"kind\":\"k\",\"at\":\"2026-01-01T00:00:00Z\"}\n",
		"empty line":      "\n",
		"no kind":         "{\"id\":\"a\"}\n",
		"no id":           "{\"kind\":\"k\"}\n",
		"another's value": "[]\n",
	} {
		j := newJournal(t)
		os.WriteFile(j.path, []byte(text), 0o600)
		where := "line 1"
		if name == "garbage" {
			where = "line 2"
		}
		if _, err := j.Pending(t.Context()); !errors.Is(err, atomicfile.ErrCorrupt) || !strings.Contains(err.Error(), where) {
			t.Errorf("%s: pending: %v", name, err)
		}
		if _, err := j.Before(t.Context(), "k", nil, atomicfile.Volatile); !errors.Is(err, atomicfile.ErrCorrupt) {
			t.Errorf("%s: before: %v", name, err)
		}
		if err := j.Remove(t.Context()); !errors.Is(err, atomicfile.ErrCorrupt) {
			t.Errorf("%s: remove: %v", name, err)
		}
	}
}

func TestManyWriters(t *testing.T) {
	j := newJournal(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				id, err := j.Before(t.Context(), "k", args{"/x"}, atomicfile.Volatile)
				if err == nil {
					err = j.Done(t.Context(), id)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := j.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFull(t *testing.T) {
	j := newJournal(t)
	id := j.add(t, "k", "/1")
	if _, err := j.Before(t.Context(), "k", args{strings.Repeat("x", maxSize)}, atomicfile.Volatile); !errors.Is(err, errFull) {
		t.Errorf("before: %v", err)
	}
	if err := j.Done(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// TestFullToTheByte: a journal accepts entries exactly up to its bound.
func TestFullToTheByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that all timestamps have the same length
		j := newJournal(t)
		size := func() int {
			info, err := os.Stat(j.path)
			if err != nil {
				t.Fatal(err)
			}
			return int(info.Size())
		}
		id := j.add(t, "k", "")
		empty := size() - 1 // without the line's end
		if err := j.Done(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		room := maxSize - size() - empty
		for _, tc := range []struct {
			size int
			want error
		}{{room + 1, errFull}, {room, nil}, {0, errFull}} {
			if _, err := j.Before(t.Context(), "k", args{strings.Repeat("x", tc.size)}, atomicfile.Volatile); !errors.Is(err, tc.want) {
				t.Errorf("%d bytes where %d have room: %v", tc.size, room, err)
			}
		}
	})
}

// TestUndoTogether: entries of some kinds are undone together, after newer and before older entries. Failed ones stay.
func TestUndoTogether(t *testing.T) {
	j := newJournal(t)
	for i, kind := range []string{"first", "a", "between", "b", "last"} {
		j.add(t, kind, fmt.Sprint(i))
	}
	var order []string
	met := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
	boom := errors.New("boom")
	h := Handlers{}
	for _, kind := range []string{"first", "between", "last"} {
		h[kind] = func(context.Context, json.RawMessage) error { order = append(order, kind); return nil }
	}
	for kind, other := range map[string]string{"a": "b", "b": "a"} {
		h[kind] = func(ctx context.Context, _ json.RawMessage) error {
			close(met[kind])
			select {
			case <-met[other]:
			case <-ctx.Done():
				return ctx.Err()
			}
			if kind == "b" {
				return boom
			}
			return nil
		}
	}
	if err := j.Undo(testdeadline.Context(t, 10*time.Second), h, "a", "b"); !errors.Is(err, boom) {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"last", "between", "first"}, order); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"b"}, j.kinds(t)); diff != "" {
		t.Error(diff)
	}
}

// TestUndoInterrupted: Undo stops when its context ends, and keeps the other entries.
func TestUndoInterrupted(t *testing.T) {
	j := newJournal(t)
	j.add(t, "k", "/1")
	j.add(t, "k", "/2")
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := j.Undo(ctx, Handlers{"k": func(context.Context, json.RawMessage) error { n++; cancel(); return nil }})
	if !errors.Is(err, context.Canceled) || n != 1 || !strings.Contains(err.Error(), "undo 1 more") {
		t.Errorf("undo: %v after %d", err, n)
	}
	if got := j.kinds(t); len(got) != 1 {
		t.Errorf("pending %v", got)
	}
}
