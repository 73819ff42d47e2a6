package cri

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestReapHalfMade: Reap removes the remains of a crash during a start, and leaves another instance's pods alone.
func TestReapHalfMade(t *testing.T) {
	w := enginetest.New()
	roots := enginetest.Roots(t)
	o := testOptions(t, roots)
	release := w.Block("StartSandbox")
	s := fakeService(t, w, o)
	go s.RunPodSandbox(t.Context(), podConfig("half"), "")
	deadline := time.Now().Add(testdeadline.For(10 * time.Second))
	for !slices.Contains(w.Calls(), "StartSandbox") && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	// A killed engine leaves a copy of the disk at that moment.
	crashed := enginetest.Roots(t)
	copySmall(t, crashed.Data, roots.Data)
	// The copy's engines have their own state directory, which the killed engine has not recorded.
	if err := os.Remove(filepath.Join(crashed.Data, o.Instance+".state")); err != nil {
		t.Fatal(err)
	}
	release()
	other := testOptions(t, crashed)
	other.Instance = "other"
	if s := fakeService(t, enginetest.New(), other); len(s.e.Pods()) > 0 {
		t.Error("another instance has the pod")
	}
	if ids, err := os.ReadDir(crashed.Sandboxes()); err != nil || len(ids) != 1 {
		t.Errorf("another instance has touched the sandbox: %v %v", ids, err)
	}
	o.Roots = crashed
	next := fakeService(t, enginetest.New(), o)
	enginetest.NothingLeft(t, next.o)
	if _, err := next.RunPodSandbox(t.Context(), podConfig("half"), ""); err != nil {
		t.Errorf("the name after the crash: %v", err)
	}
}

// copySmall copies a tree without the disks in it.
func copySmall(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.Walk(from, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if info.IsDir() {
			return os.MkdirAll(target, info.Mode())
		}
		if info.Size() > 1<<20 {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, info.Mode())
	})
	if err != nil {
		t.Fatal(err)
	}
}
