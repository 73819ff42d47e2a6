package cri

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// TestKubeletDirs: an emptyDir has the properties of the kubelet's directory on the host. emptyDirs of the client's
// options stay unchanged.
func TestKubeletDirs(t *testing.T) {
	root := t.TempDir()
	s := &Service{volumes: layout.Dirs{Kubelet: root, Own: "/own"}}
	config := &runtimeapi.ContainerConfig{}
	mkdir := func(name string, mode os.FileMode, gid int) string {
		dir := filepath.Join(root, "pods", "u", "volumes", layout.EmptyDir, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chown(dir, 0, gid), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: dir, ContainerPath: "/" + name})
		return dir
	}
	mount := func(dir, kind, data string) {
		if err := unix.Mount(kind, dir, kind, 0, data); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
	}
	mkdir("disk", 0o777, 0)
	mkdir("shared", 0o777|os.ModeSetgid, 2000)
	mount(mkdir("memory", 0o777, 0), "tmpfs", "size=4m,mode=1750")
	config.Mounts = append(config.Mounts,
		&runtimeapi.Mount{HostPath: filepath.Join(root, "pods", "u", "volumes", layout.EmptyDir, "gone"), ContainerPath: "/gone"},
		&runtimeapi.Mount{HostPath: "/own/u/" + layout.EmptyDir + "/mine", ContainerPath: "/mine"},
		&runtimeapi.Mount{HostPath: root, ContainerPath: "/other"},
	)
	mine := map[string]containerv1.Dir{"mine": {Name: "mine", Size: 1}}
	got := runtimev1.PodOptions{EmptyDirs: mine}
	if err := kubeletDirs(s.volumes, &got, config); err != nil {
		t.Fatal(err)
	}
	want := runtimev1.PodOptions{FSGroup: 2000, EmptyDirs: map[string]containerv1.Dir{
		"mine":   {Name: "mine", Size: 1},
		"disk":   {Name: "disk", Mode: 0o777},
		"shared": {Name: "shared", Mode: 0o2777},
		"memory": {Name: "memory", Mode: 0o1750, Medium: containerv1.Memory, Size: 4 << 20},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(mine) != 1 {
		t.Errorf("the pod's own emptyDirs changed to %v", mine)
	}
	mount(mkdir("strange", 0o777, 0), "ramfs", "")
	if err := kubeletDirs(s.volumes, &got, config); !errors.Is(err, oci.ErrNotSupported) {
		t.Errorf("on another file system: %v", err)
	}
}
