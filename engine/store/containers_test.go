package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// TestContainers checks that containers are read as stored. A damaged exit is reported as a failure, and a damaged
// record separately.
func TestContainers(t *testing.T) {
	_, stores := open(t, "one")
	s := stores[0]
	pod := createPod(t, s, "a").ID
	if whole, broken, err := s.Containers(pod); err != nil || len(whole)+len(broken) != 0 {
		t.Errorf("pod without containers: %v, %v, %v", whole, broken, err)
	}
	runs, ended, lost := NewID(), NewID(), NewID()
	want := map[string]Stored{}
	for _, id := range []string{runs, ended, lost} {
		c := Container{ID: id, Name: "web", StopSignal: 15, Created: time.Unix(1, 0).UTC()}
		if err := s.PutContainer(pod, &c); err != nil {
			t.Fatal(err)
		}
		want[id] = Stored{Container: c}
	}
	exit := Exit{Code: 3, Reason: "Error", At: time.Unix(2, 0).UTC()}
	if err := s.PutExit(pod, ended, &exit); err != nil {
		t.Fatal(err)
	}
	want[ended] = Stored{Container: want[ended].Container, Exit: &exit}
	overwrite(t, filepath.Join(s.containerDir(pod, lost), exitFile), "{")
	want[lost] = Stored{
		Container: want[lost].Container, Exit: &Exit{Code: 255, Reason: "Unknown", Message: "the record of its end is damaged"},
	}
	bad := map[string]string{
		NewID(): "{", NewID(): fmt.Sprintf(`{"version":%d,"id":%q}`, Version, NewID()), NewID(): `{"version":1,"id":"%s"}`,
	}
	for id, content := range bad {
		if err := os.Mkdir(s.containerDir(pod, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if content == `{"version":1,"id":"%s"}` {
			content = fmt.Sprintf(content, id)
		}
		overwrite(t, filepath.Join(s.containerDir(pod, id), containerFile), content)
	}
	if err := os.Mkdir(s.containerDir(pod, "-no id"), 0o700); err != nil {
		t.Fatal(err)
	}
	whole, broken, err := s.Containers(pod)
	got := map[string]Stored{}
	for _, c := range whole {
		got[c.ID] = c
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if len(broken) != len(bad) {
		t.Errorf("broken: %v", broken)
	}
	for id := range bad {
		if !errors.Is(broken[id], atomicfile.ErrCorrupt) {
			t.Errorf("%s: %v", bad[id], broken[id])
		}
	}
}

// TestDropContainer checks that a dropped container leaves nothing, and that an invalid id is never used as a path.
func TestDropContainer(t *testing.T) {
	_, stores := open(t, "one")
	s := stores[0]
	pod, id := createPod(t, s, "a").ID, NewID()
	if err := s.PutContainer(pod, &Container{ID: id}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.DropContainer(pod, id); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(s.containerDir(pod, id)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := s.DropContainer(pod, ".."); err == nil {
		t.Error("a path is dropped")
	}
	if err := s.PutContainer(pod, &Container{ID: "../x"}); err == nil {
		t.Error("a path is stored")
	}
	overwrite(t, filepath.Join(s.Dir(pod), containersDir, id), "") // in place of its directory
	if err := s.PutContainer(pod, &Container{ID: id}); err == nil {
		t.Error("stored in a file")
	}
	if err := os.RemoveAll(filepath.Join(s.Dir(pod), containersDir)); err != nil {
		t.Fatal(err)
	}
	overwrite(t, filepath.Join(s.Dir(pod), containersDir), "")
	if _, _, err := s.Containers(pod); err == nil {
		t.Error("no error for a file in place of the directory of containers")
	}
}
