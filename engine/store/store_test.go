package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// open opens the stores of instances that share their roots.
func open(t *testing.T, instances ...string) (dirs.Roots, []*Store) {
	t.Helper()
	roots := dirs.Roots{Data: t.TempDir(), State: t.TempDir()}
	var stores []*Store
	for _, instance := range instances {
		s, err := Open(roots, instance)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	return roots, stores
}

// createPod creates a pod with its name.
func createPod(t *testing.T, s *Store, key string) *Pod {
	t.Helper()
	p := &Pod{ID: NewID(), Key: key, Phase: Ready, MemoryMiB: 512, Created: time.Unix(1, 0).UTC()}
	for _, err := range []error{s.Reserve(key, p.ID), s.MakePod(p.ID), s.PutPod(p)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// overwrite overwrites or creates a file.
func overwrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesOtherNames(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "Upper", "-a", strings.Repeat("a", 33)} {
		if _, err := Open(dirs.Roots{Data: t.TempDir(), State: t.TempDir()}, name); err == nil {
			t.Errorf("%q is an instance", name)
		}
	}
}

func TestValidID(t *testing.T) {
	id := NewID()
	for candidate, want := range map[string]bool{
		id: true, id[1:]: false, id + "0": false, strings.ToUpper("A" + id[1:]): false, strings.Repeat("x", 64): false, "": false,
		"../" + id[3:]: false,
	} {
		if ValidID(candidate) != want {
			t.Errorf("%q: %v", candidate, !want)
		}
	}
	if NewID() == id {
		t.Error("the same id twice")
	}
}

// TestPodsAreTheirInstances checks that an instance lists only its own pods, intact or damaged.
func TestPodsAreTheirInstances(t *testing.T) {
	roots, stores := open(t, "one", "two")
	whole, damaged := createPod(t, stores[0], "a"), createPod(t, stores[0], "b")
	nameless, versioned := createPod(t, stores[0], "c"), createPod(t, stores[0], "d")
	foreign := createPod(t, stores[1], "a") // with the same name, in another instance
	overwrite(t, filepath.Join(stores[0].Dir(damaged.ID), podFile), "{")
	overwrite(t, filepath.Join(stores[0].Dir(nameless.ID), podFile), "{")
	if err := stores[0].Release("c", nameless.ID); err != nil {
		t.Fatal(err)
	}
	earlier := fmt.Sprintf(`{"version":1,"id":%q,"instance":"one","phase":"ready"}`, versioned.ID)
	overwrite(t, filepath.Join(stores[0].Dir(versioned.ID), podFile), earlier)
	file, unwritten := NewID(), NewID() // a file, and a pod without a record
	for i, name := range []string{"no id", file, unwritten} {
		err := stores[0].Reserve(fmt.Sprint(i), name)
		if err == nil && name != file {
			err = os.Mkdir(filepath.Join(roots.Sandboxes(), name), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	overwrite(t, filepath.Join(roots.Sandboxes(), file), "")

	pods, broken, err := stores[0].Pods()
	if err != nil || len(pods) != 1 || len(broken) != 2 {
		t.Fatalf("%d pods, damaged %v, %v", len(pods), broken, err)
	}
	if diff := cmp.Diff(whole, pods[0]); diff != "" {
		t.Error(diff)
	}
	for _, p := range []*Pod{damaged, versioned} {
		if !errors.Is(broken[p.ID], atomicfile.ErrCorrupt) {
			t.Errorf("the damaged one: %v", broken[p.ID])
		}
	}
	if ids, err := stores[0].PodIDs(); err != nil || len(ids) != 3 {
		t.Errorf("the instance has %v, %v", ids, err)
	}
	if _, err := stores[0].Pod(foreign.ID); !errors.Is(err, ErrForeign) {
		t.Errorf("another instance's pod: %v", err)
	}
	if _, err := stores[0].Pod(NewID()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no pod: %v", err)
	}
	if ids, err := stores[1].PodIDs(); err != nil || !slices.Equal(ids, []string{foreign.ID}) {
		t.Errorf("the other instance has %v, %v", ids, err)
	}
}

// TestMismatchedRecords checks that a record that does not match its place counts as damaged.
func TestMismatchedRecords(t *testing.T) {
	_, stores := open(t, "one")
	s := stores[0]
	for name, change := range map[string]func(*Pod){
		"another id": func(p *Pod) { p.ID = NewID() }, "another version": func(p *Pod) { p.Version = 1 },
		"no phase": func(p *Pod) { p.Phase = "" }, "an unknown phase": func(p *Pod) { p.Phase = "gone" },
	} {
		p := createPod(t, s, name)
		path := filepath.Join(s.Dir(p.ID), podFile)
		change(p)
		if err := atomicfile.WriteJSON(path, p, 0o600, atomicfile.Volatile); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Pod(filepath.Base(filepath.Dir(path))); !errors.Is(err, atomicfile.ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, phase := range []Phase{Starting, Ready, Stopped, Removing} {
		p := createPod(t, s, "in "+string(phase))
		p.Phase = phase
		if err := s.PutPod(p); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Pod(p.ID); err != nil || got.Phase != phase {
			t.Errorf("%s: %v, %v", phase, got, err)
		}
	}
}

// TestDropPod checks that a dropped pod leaves nothing in any state, and that an invalid id is never used as a
// path.
func TestDropPod(t *testing.T) {
	roots, stores := open(t, "one")
	s := stores[0]
	p := createPod(t, s, "a")
	if err := os.MkdirAll(filepath.Join(s.StateDir(p.ID), "vm"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.DropPod(p.ID); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{s.Dir(p.ID), s.StateDir(p.ID)} {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := s.DropPod("../sandboxes"); err == nil {
		t.Error("a path is an id")
	}
	if _, err := os.Lstat(roots.Sandboxes()); err != nil {
		t.Error(err)
	}
	if err := s.MakePod(p.ID); err != nil {
		t.Error(err)
	}
	if err := s.MakePod(p.ID); err == nil {
		t.Error("a pod is made over another")
	}
}

func TestInstances(t *testing.T) {
	roots := dirs.Roots{Data: t.TempDir(), State: t.TempDir()}
	if names, err := Instances(roots); err != nil || len(names) != 0 {
		t.Errorf("Instances of empty roots: got %v, error %v, want none", names, err)
	}
	for _, name := range []string{"run", "cri"} {
		if _, err := Open(roots, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(roots.Data, "names", "No Instance"), 0o700); err != nil {
		t.Fatal(err)
	}
	overwrite(t, filepath.Join(roots.Data, "names", "file"), "")
	if names, err := Instances(roots); err != nil || !slices.Equal(names, []string{"cri", "run"}) {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := Instances(dirs.Roots{Data: filepath.Join(roots.Data, "names", "file")}); err == nil {
		t.Error("no error for a file in place of the directory of instances")
	}
}
