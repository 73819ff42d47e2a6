package hostcgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSlicePath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/kubepods/pod1":                  "/kubepods/pod1",
		"/kubepods.slice":                 "/kubepods.slice",
		"/kubepods-burstable-podab.slice": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab.slice",
		"/x/a-b.slice":                    "/a.slice/a-b.slice",
	} {
		if got := SlicePath(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestBelow: groups lie in another owner's group, which is created if it is missing, in each hierarchy. It is an error
// if that is impossible or the group is too small.
func TestBelow(t *testing.T) {
	t.Parallel()
	memory, pids := t.TempDir(), t.TempDir()
	h := &Host{
		tag: "t", support: Support{Version: 1}, mounts: map[string]string{"memory": memory, "pids": pids},
		parents: map[string]string{"memory": filepath.Join(memory, "own"), "pids": pids},
	}
	fakeGroup(t, filepath.Join(memory, "kube/pod"), map[string]string{"memory.limit_in_bytes": "1048576\n"})
	if err := os.WriteFile(filepath.Join(pids, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Below("/file/pod", 0); err == nil || errors.Is(err, ErrTooSmall) || !strings.Contains(err.Error(), pids) {
		t.Errorf("cannot be made in one hierarchy: %v", err)
	}
	if _, err := h.Below("/kube/pod", 2<<20); !errors.Is(err, ErrTooSmall) || !strings.Contains(err.Error(), "RuntimeClass") {
		t.Errorf("too small: %v", err)
	}
	for _, parent := range []string{"/kube/pod", "kube/pod", "../../kube/../kube/pod"} {
		below, err := h.Below(parent, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{filepath.Join(memory, "kube/pod/t/x"), filepath.Join(pids, "kube/pod/t/x")}
		if got := below.Dirs("x"); !slices.Equal(got, want) {
			t.Errorf("%s: %v", parent, got)
		}
		if _, err := below.Create("x", Limits{}); err != nil {
			t.Error(err)
		}
	}
}
