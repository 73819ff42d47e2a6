package containerd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// fronts returns the processes of the front.
func (n *node) fronts(t *testing.T) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil && exe == n.front {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// left returns the things that fronts have left: processes, sockets, mounts, records and bundles.
func (n *node) left(t *testing.T) (list []string) {
	t.Helper()
	for _, pid := range n.fronts(t) {
		args, _ := procid.ID{PID: pid}.Args()
		list = append(list, "process "+strings.Join(args, " "))
	}
	for _, pattern := range []string{
		filepath.Join(bootstrap.DefaultSocketDir, "*"), n.path("containers/*/*"), n.path("state/io.containerd.runtime.v2.task/*/*"),
		n.path("state/io.containerd.sandbox.controller.v1.shim/*/*"),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, files...)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.path("state")))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		list = append(list, "mount "+m.Mountpoint)
	}
	return list
}

// nothingLeft fails the test if something is left for long: containerd cleans up after its clients have their answers.
func (n *node) nothingLeft(t *testing.T) {
	t.Helper()
	for limit := time.Now().Add(testdeadline.For(10 * time.Second)); ; {
		left := n.left(t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(limit) {
			t.Errorf("left: %q", left)
			n.clear(t)
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

// clear removes things that would fail the next tests too.
func (n *node) clear(t *testing.T) {
	t.Helper()
	for _, pid := range n.fronts(t) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
	files, err := filepath.Glob(filepath.Join(bootstrap.DefaultSocketDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		os.Remove(file)
	}
}
