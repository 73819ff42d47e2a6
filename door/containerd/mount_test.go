package containerd

import (
	"os"
	"path/filepath"
	"testing"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
)

// mounted returns the number of mounts in a directory.
func mounted(t *testing.T, dir string) int {
	t.Helper()
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestRoot: the root is mounted by Create, and unmounted by Delete, by a failed Create, and by Remove.
func TestRoot(t *testing.T) {
	r, dir := start(t), bundle(t)
	request := &taskv3.CreateTaskRequest{ID: "c", Bundle: dir, Rootfs: []*types.Mount{{Type: "tmpfs", Source: "tmpfs"}}}
	r.set("create c", errFake)
	wantCode(t, "a failure", second(r.task.Create(within(t), request)), codes.Unknown)
	if n := mounted(t, dir); n != 0 {
		t.Errorf("%d mounts after a failure", n)
	}
	r.set("create c", nil)
	wantCode(t, "Create", second(r.task.Create(within(t), request)), codes.OK)
	if n := mounted(t, dir); n != 1 {
		t.Errorf("%d mounts after Create, want 1", n)
	}
	wantCode(t, "Delete", second(r.task.Delete(within(t), &taskv3.DeleteRequest{ID: "c"})), codes.OK)
	if n := mounted(t, dir); n != 0 {
		t.Errorf("%d mounts after Delete", n)
	}
	wantCode(t, "Create again", second(r.task.Create(within(t), request)), codes.OK)
	for range 2 {
		if err := Remove(within(t), r.fake, "c", dir); err != nil {
			t.Error(err)
		}
	}
	r.await(t, "c", "") // and is recorded in the bundle
	if n := mounted(t, dir); n != 0 || r.called("delete c") != 3 {
		t.Errorf("%d mounts after Remove, and %d removals", n, r.called("delete c"))
	}
	if err := os.RemoveAll(filepath.Join(dir, rootName)); err != nil {
		t.Error(err)
	}
}
