package group

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
)

// onHost returns groups of the test's own on this host, and their log.
func onHost(t *testing.T) (*Groups, *strings.Builder) {
	t.Helper()
	var log strings.Builder
	state := t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "test"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := Find(dirs.Roots{Data: t.TempDir(), State: state}, "test", slog.New(slog.NewTextHandler(&log, nil)))
	if g.host.Support().Version == 0 {
		t.Skipf("no cgroups for this user: %s", g.host.Support().Missing)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(5*time.Second))
		defer cancel()
		if err := g.Reap(ctx, func(string) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	return g, &log
}

// exist counts the existing directories.
func exist(dirs []string) (n int) {
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			n++
		}
	}
	return n
}

// TestLifeOfAGroup checks that a pod's processes start in its cgroup, which is journalled, and end with it.
func TestLifeOfAGroup(t *testing.T) {
	g, log := onHost(t)
	ctx := testdeadline.Context(t, 5*time.Second)
	j, r := journal.At(filepath.Join(t.TempDir(), "journal")), &store.Pod{ID: "x", MemoryMiB: 64}
	r.Cgroup.Note = "a note of an earlier host"
	if err := g.Make(ctx, j, r, 0); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Cgroup.Dirs, g.host.Dirs("x")) || exist(r.Cgroup.Dirs) != len(r.Cgroup.Dirs) ||
		r.Cgroup.Limits != MemoryLimits(64, store.Overhead{}) || r.Cgroup.Note != g.host.Support().Missing {
		t.Errorf("made as %+v", r.Cgroup)
	}
	undo, err := j.Pending(ctx)
	if err != nil || len(undo) != 1 || undo[0].Kind != Undo {
		t.Fatalf("journal: %v, %v", undo, err)
	}

	out, err := output(r, nil)
	if err != nil || !strings.Contains(out, "-test-") || !strings.Contains(out, "/x\n") {
		t.Errorf("a process is born in %s, %v", out, err)
	}
	refusal := errors.New("not today")
	if _, err := output(r, func(*exec.Cmd) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("another start: %v", err)
	}

	waiting := exec.CommandContext(ctx, "cat")
	if _, err := waiting.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := In(r, nil)(waiting); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is idempotent
		if err := Destroy(ctx, undo[0].Args); err != nil {
			t.Error(err)
		}
	}
	if err := waiting.Wait(); err == nil || err.Error() != "signal: killed" || ctx.Err() != nil {
		t.Errorf("the group's process: %v", err)
	}
	if n := exist(r.Cgroup.Dirs); n != 0 {
		t.Errorf("%d directories are left", n)
	}

	g.Remake(r)
	if exist(r.Cgroup.Dirs) != len(r.Cgroup.Dirs) {
		t.Error("not made again")
	}
	if log.Len() != 0 {
		t.Errorf("the log says %s", log)
	}
}

// output returns the report of the pod's process about its cgroup.
func output(r *store.Pod, start func(*exec.Cmd) error) (string, error) {
	var out strings.Builder
	cmd := exec.Command("cat", "/proc/self/cgroup")
	cmd.Stdout = &out
	if err := In(r, start)(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

// TestNotMade checks that a pod runs without a cgroup that cannot be created, but not with one that the journal
// cannot record.
func TestNotMade(t *testing.T) {
	g, log := onHost(t)
	ctx := testdeadline.Context(t, time.Second)
	dir := t.TempDir()
	r := &store.Pod{ID: ".x"}
	if err := g.Make(ctx, journal.At(filepath.Join(dir, "journal")), r, 0); err != nil {
		t.Error(err)
	}
	if len(r.Cgroup.Dirs) != 0 || !strings.Contains(r.Cgroup.Note, "invalid name") || !strings.Contains(log.String(), "no cgroup") {
		t.Errorf("%+v, and the log says %s", r.Cgroup, log)
	}
	r.Cgroup.Dirs = g.host.Dirs(".x")
	g.Remake(r)
	if !strings.Contains(log.String(), "again") {
		t.Errorf("the log says %s", log)
	}
	unknown := &store.Pod{ID: "x"}
	if err := g.Make(ctx, journal.At(dir), unknown, 0); err == nil || exist(g.host.Dirs("x")) != 0 {
		t.Errorf("without a journal: %+v, %v", unknown.Cgroup, err)
	}
}

// TestNotLimited checks that limits that the kernel refuses are not recorded, except for the note.
func TestNotLimited(t *testing.T) {
	g, log := onHost(t)
	r := &store.Pod{ID: "x"}
	if err := g.Make(testdeadline.Context(t, time.Second), journal.At(filepath.Join(t.TempDir(), "journal")), r, 0); err != nil {
		t.Fatal(err)
	}
	before := r.Cgroup.Limits
	g.HoldCPU(r, 1, 1, store.Overhead{}) // of a microsecond: too small for the kernel
	if r.Cgroup.Limits != before || !strings.Contains(r.Cgroup.Note, "limit a cgroup") || !strings.Contains(log.String(), "pod=x") {
		t.Errorf("%+v, and the log says %s", r.Cgroup, log)
	}
}

// TestAnothersGroup checks that a cgroup of another hierarchy is not created again.
func TestAnothersGroup(t *testing.T) {
	g, _ := onHost(t)
	r := &store.Pod{ID: "x"}
	r.Cgroup.Dirs = []string{filepath.Join(t.TempDir(), "x")}
	g.Remake(r)
	if exist(r.Cgroup.Dirs)+exist(g.host.Dirs("x")) != 0 {
		t.Error("made again")
	}
}

// TestReap checks that cgroups without a pod end, and the directory around them with the last one.
func TestReap(t *testing.T) {
	g, _ := onHost(t)
	ctx := testdeadline.Context(t, time.Second)
	for _, id := range []string{"kept", "lost"} {
		if err := g.Make(ctx, journal.At(filepath.Join(t.TempDir(), "journal")), &store.Pod{ID: id}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Reap(ctx, func(id string) bool { return id == "kept" }); err != nil {
		t.Error(err)
	}
	if names, err := g.host.Names(); err != nil || !slices.Equal(names, []string{"kept"}) {
		t.Errorf("left are %v, %v", names, err)
	}
	args, err := json.Marshal(undoArgs{Dirs: g.host.Dirs("kept")})
	if err != nil {
		t.Fatal(err)
	}
	if err := Destroy(ctx, args); err != nil {
		t.Error(err)
	}
	g.Tidy()
	if n := exist(g.host.Dirs("")); n != 0 {
		t.Errorf("%d directories around the groups are left", n)
	}
}

// TestPlaces checks that engines with other directories or instances have their own cgroups.
func TestPlaces(t *testing.T) {
	seen := map[string]bool{}
	for _, place := range []struct {
		roots    dirs.Roots
		instance string
	}{
		{dirs.Roots{Data: "/a", State: "/b"}, "test"}, {dirs.Roots{Data: "/b", State: "/a"}, "test"},
		{dirs.Roots{Data: "/a/b"}, "test"}, {dirs.Roots{Data: "/a", State: "/b"}, "other"},
	} {
		g := Find(place.roots, place.instance, slog.Default())
		g.Tidy()
		for _, dir := range g.host.Dirs("x") {
			if seen[dir] || !strings.Contains(dir, "/bulkhead-"+place.instance+"-") {
				t.Errorf("%+v: %s", place, dir)
			}
			seen[dir] = true
		}
	}
}

// TestBelow checks that a pod's cgroup lies in the requested parent if that has room, and leaves nothing there.
func TestBelow(t *testing.T) {
	g, log := onHost(t)
	ctx := testdeadline.Context(t, 5*time.Second)
	parent := "/bulkhead-kubelet-" + filepath.Base(filepath.Dir(g.host.Dirs("x")[0]))
	var outer []string
	for _, top := range g.host.Tops() {
		dir := filepath.Join(top, parent)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		outer = append(outer, dir)
	}
	j, r := journal.At(filepath.Join(t.TempDir(), "journal")), &store.Pod{ID: "x", MemoryMiB: 64}
	r.Cgroup.Parent = parent
	if err := g.Make(ctx, j, r, 0); err != nil {
		t.Fatal(err)
	}
	for _, dir := range r.Cgroup.Dirs {
		if !strings.Contains(dir, parent+"/") || exist([]string{dir}) != 1 {
			t.Errorf("made at %s", dir)
		}
	}
	if err := j.Undo(ctx, journal.Handlers{Undo: Destroy}); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(outer[0]); err != nil || slices.ContainsFunc(entries, os.DirEntry.IsDir) {
		t.Errorf("left in the other's group: %v, %v", entries, err)
	}

	if err := hostcgroup.At(outer).Set(hostcgroup.Limits{Memory: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	missing := &store.Pod{ID: "z", MemoryMiB: 64}
	missing.Cgroup.Parent = parent + "/made/here"
	if err := g.Make(ctx, j, missing, 0); err != nil || exist(missing.Cgroup.Dirs) != len(outer) {
		t.Errorf("below a missing group: %+v, %v", missing.Cgroup, err)
	}
	if err := j.Undo(ctx, journal.Handlers{Undo: Destroy}); err != nil {
		t.Error(err)
	}
	for _, dir := range outer {
		if err := errors.Join(os.Remove(dir+"/made/here"), os.Remove(dir+"/made")); err != nil {
			t.Error(err)
		}
	}
	unmade := &store.Pod{ID: "u", MemoryMiB: 64}
	unmade.Cgroup.Parent = parent + "/cgroup.procs/pod"
	if err := g.Make(ctx, j, unmade, 0); err == nil || len(unmade.Cgroup.Dirs) != 0 {
		t.Errorf("below a directory that is not a cgroup: %+v, %v", unmade.Cgroup, err)
	}

	small := &store.Pod{ID: "y", MemoryMiB: 64}
	small.Cgroup.Parent = parent
	if err := g.Make(ctx, j, small, 32<<20); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(small.Cgroup.Dirs, g.host.Dirs("y")) || !strings.Contains(small.Cgroup.Note, "RuntimeClass") ||
		!strings.Contains(log.String(), "RuntimeClass") {
		t.Errorf("made as %+v", small.Cgroup)
	}
	if err := j.Undo(ctx, journal.Handlers{Undo: Destroy}); err != nil {
		t.Error(err)
	}
}
