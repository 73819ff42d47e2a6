package atomicdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func open(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, dir
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..2") {
			list = append(list, e.Name())
		}
	}
	return list
}

func TestWriteGivesTheKubeletsLayout(t *testing.T) {
	root, dir := open(t)
	first := []File{{Path: "a", Mode: 0o644, Data: []byte("1")}, {Path: "d/e/f", Mode: 0o400, Data: []byte("2")}, {Path: "d/g", Mode: 0o755}}
	if changed, err := Write(root, first); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if diff := cmp.Diff([]string{"..data", "a", "d"}, names(t, dir)); diff != "" {
		t.Error(diff)
	}
	if to, err := os.Readlink(filepath.Join(dir, "d")); to != "..data/d" {
		t.Error(to, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "d/e/f")); string(text) != "2" {
		t.Error(text, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "d/g")); err != nil || info.Mode().Perm() != 0o755 {
		t.Error(info, err)
	}
	if changed, err := Write(root, []File{first[2], first[0], first[1]}); err != nil || changed {
		t.Error("the same set in another order:", changed, err)
	}
	have, err := Read(root, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	less := func(a, b File) bool { return a.Path < b.Path }
	if diff := cmp.Diff(first, have, cmpopts.SortSlices(less), cmpopts.IgnoreFields(File{}, "UID", "GID"), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// TestASetReplacesAnother: only the new set's files remain, whatever the sets have in common, and an open file keeps
// its content.
func TestASetReplacesAnother(t *testing.T) {
	for _, tc := range []struct {
		name        string
		first, next []File
		want        map[string]string
	}{
		{name: "content", first: []File{{Path: "a", Data: []byte("1")}}, next: []File{{Path: "a", Data: []byte("2")}},
			want: map[string]string{"a": "2"}},
		{name: "mode", first: []File{{Path: "a", Mode: 0o600}}, next: []File{{Path: "a", Mode: 0o640}}, want: map[string]string{"a": ""}},
		{name: "more", first: []File{{Path: "a"}}, next: []File{{Path: "a"}, {Path: "b", Data: []byte("2")}},
			want: map[string]string{"a": "", "b": "2"}},
		{name: "fewer", first: []File{{Path: "a"}, {Path: "b"}}, next: []File{{Path: "b"}}, want: map[string]string{"b": ""}},
		{name: "none", first: []File{{Path: "a"}}, want: map[string]string{}},
		{name: "file to directory", first: []File{{Path: "a"}}, next: []File{{Path: "a/b", Data: []byte("2")}},
			want: map[string]string{"a/b": "2"}},
		{name: "directory to file", first: []File{{Path: "a/b"}}, next: []File{{Path: "a", Data: []byte("2")}},
			want: map[string]string{"a": "2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, dir := open(t)
			for i := range tc.first {
				tc.first[i].Mode |= 0o600
			}
			for i := range tc.next {
				tc.next[i].Mode |= 0o600
			}
			if _, err := Write(root, tc.first); err != nil {
				t.Fatal(err)
			}
			if changed, err := Write(root, tc.next); err != nil || !changed {
				t.Fatal(changed, err)
			}
			have := map[string]string{}
			files, err := Read(root, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				text, err := os.ReadFile(filepath.Join(dir, f.Path)) // through the links
				if err != nil {
					t.Error(err)
				}
				have[f.Path] = string(text)
			}
			if diff := cmp.Diff(tc.want, have); diff != "" {
				t.Error(diff)
			}
			tops := map[string]bool{Data: true}
			for name := range tc.want {
				top, _, _ := strings.Cut(name, "/")
				tops[top] = true
			}
			if left := names(t, dir); len(left) != len(tops) {
				t.Errorf("in the directory: %v, want %v", left, tops)
			}
			sets, _ := filepath.Glob(filepath.Join(dir, "..2*"))
			if len(sets) != 1 {
				t.Errorf("sets left: %v", sets)
			}
		})
	}
}

func TestPathsStayWithin(t *testing.T) {
	for _, name := range []string{"", ".", "..", "/a", "../a", "a/../b", "a//b", "a/", "..data", "..a", "a\x00b", "./a"} {
		if err := CheckPath(name); !errors.Is(err, ErrPath) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"a", ".a", "a/b", "a/..b", "a..", "a b"} {
		if err := CheckPath(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestLinksLeadNowhere: links that a reader of the directory has planted are not followed outside.
func TestLinksLeadNowhere(t *testing.T) {
	outside := t.TempDir()
	for _, plant := range []string{Data, newData, "a", "d"} {
		root, dir := open(t)
		if err := os.Symlink(outside, filepath.Join(dir, plant)); err != nil {
			t.Fatal(err)
		}
		if _, err := Write(root, []File{{Path: "a", Mode: 0o600, Data: []byte("x")}, {Path: "d/e", Mode: 0o600}}); err != nil {
			t.Errorf("%s: %v", plant, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "a")); string(text) != "x" {
			t.Errorf("%s: %q, %v", plant, text, err)
		}
		if left := names(t, outside); len(left) != 0 {
			t.Fatalf("%s: written outside: %v", plant, left)
		}
	}
	root, dir := open(t)
	if err := os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, Data)); err != nil {
		t.Fatal(err)
	}
	if files, err := Read(root, Limits{}); err == nil {
		t.Errorf("read outside: %v", files)
	}
}

func TestReadIsBounded(t *testing.T) {
	root, _ := open(t)
	if _, err := Write(root, []File{{Path: "a", Mode: 0o600, Data: make([]byte, 100)},
		{Path: "b", Mode: 0o600, Data: make([]byte, 100)}}); err != nil {
		t.Fatal(err)
	}
	for _, limits := range []Limits{{Bytes: 199}, {Files: 1}} {
		if _, err := Read(root, limits); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%+v: %v", limits, err)
		}
	}
	if _, err := Read(root, Limits{Bytes: 200, Files: 2}); err != nil {
		t.Error(err)
	}
}

func TestAFileGrowsByPieces(t *testing.T) {
	root, dir := open(t)
	stage, err := Begin(root, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []string{"one ", "two"} {
		if err := stage.Add(File{Path: "d/a", Mode: 0o400, Data: []byte(piece)}); err != nil {
			if os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission) {
				return // other users than root cannot append to a read-only file
			}
			t.Fatal(err)
		}
	}
	if err := stage.Commit(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "d/a")); string(text) != "one two" {
		t.Error(string(text), err)
	}
}
