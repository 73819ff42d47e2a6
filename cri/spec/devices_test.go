package spec

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// loop0 is the device number of the only block device, which has two paths.
const loop0 = 7<<8 | 3

var errSilent = errors.New("no answer")

func blockNodes(path string) (Node, bool, error) {
	if path == "/dead" {
		return Node{}, false, errSilent
	}
	return Node{Mode: 0o660, Group: 6, Device: loop0}, path == "/dev/loop0" || path == "/pods/link", nil
}

func TestDevices(t *testing.T) {
	t.Parallel()
	base, err := oci.New("id")
	if err != nil {
		t.Fatal(err)
	}
	rules := len(base.Linux.Resources.Devices)
	in := func(all ...*runtimeapi.Device) Input {
		return Input{Container: &runtimeapi.ContainerConfig{Devices: all}, Block: blockNodes}
	}
	disks, err := devices(base.Linux, in(
		&runtimeapi.Device{HostPath: "/dev/null", ContainerPath: "/dev/null"},
		&runtimeapi.Device{HostPath: "/dev/fuse", ContainerPath: "/dev/card/../fuse", Permissions: "rw"},
		&runtimeapi.Device{HostPath: "/dev/zero", ContainerPath: "/x"}, &runtimeapi.Device{HostPath: "/dev/full", ContainerPath: "/x"},
		&runtimeapi.Device{HostPath: "/pods/link", ContainerPath: "/dev/xvda", Permissions: "mrw"},
		&runtimeapi.Device{HostPath: "/dev/loop0", ContainerPath: "/dev/xvdb", Permissions: "r"},
	))
	want := []containerv1.Mount{
		{Destination: "/dev/xvda", Group: 6, Source: containerv1.Block{
			Name: "/pods/link", Access: "mrw", Mode: 0o660, Device: loop0,
		}},
		{Destination: "/dev/xvdb", Group: 6, Source: containerv1.Block{
			Name: "/dev/loop0", Access: "r", Mode: 0o660, ReadOnly: true, Device: loop0,
		}},
	}
	if diff := cmp.Diff(want, disks); diff != "" {
		t.Error(diff)
	}
	out := base.Linux
	if err != nil || len(out.Devices) != 2 || len(out.Resources.Devices) != rules+1 {
		t.Fatalf("%+v, %v", out.Devices, err)
	}
	if d := out.Devices[0]; d.Path != "/dev/fuse" || d.Major != 10 || d.Minor != 229 || *d.FileMode != 0o666 {
		t.Errorf("%+v", d)
	}
	if r := out.Resources.Devices[rules]; !r.Allow || *r.Major != 10 || *r.Minor != 229 || r.Access != "rw" {
		t.Errorf("%+v", r)
	}
	for _, tt := range []struct {
		device *runtimeapi.Device
		class  error
		word   string
	}{
		{&runtimeapi.Device{HostPath: "/dev/nvidia0", ContainerPath: "/dev/nvidia0"}, oci.ErrNotSupported, "/dev/nvidia0"},
		{&runtimeapi.Device{HostPath: "/dev/kvm", ContainerPath: "/dev/kvm"}, oci.ErrNotSupported, "/dev/kvm"},
		{&runtimeapi.Device{HostPath: "/dev/null", ContainerPath: "x"}, oci.ErrInvalid, `"x"`},
		{&runtimeapi.Device{HostPath: "/dev/null", ContainerPath: "/dev/.."}, oci.ErrInvalid, "/dev/null"},
		{&runtimeapi.Device{HostPath: "/dev/null", ContainerPath: "/x", Permissions: "rx"}, oci.ErrInvalid, "rx"},
		{&runtimeapi.Device{HostPath: "/dev/loop0", ContainerPath: "/x", Permissions: "x"}, oci.ErrInvalid, "loop0"},
		{&runtimeapi.Device{HostPath: "/dev/loop0", ContainerPath: "/"}, oci.ErrInvalid, "loop0"},
		{&runtimeapi.Device{HostPath: "/dead", ContainerPath: "/x"}, errSilent, "/x"},
	} {
		if _, err := devices(base.Linux, in(tt.device)); !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%v: %v", tt.device, err)
		}
	}
}

func having(list ...*runtimeapi.Device) Input {
	return Input{Container: &runtimeapi.ContainerConfig{Devices: list}}
}

// TestBareDisks: a device is a named volume only if the pod's options name it.
func TestBareDisks(t *testing.T) {
	errBare := errors.New("it is none")
	in := having(&runtimeapi.Device{HostPath: "/own/u/kubernetes.io~host-path/v", ContainerPath: "/dev/x", Permissions: "rw"})
	in.Volumes = layout.Dirs{Own: "/own"}
	if got, err := bareDisks(in); err != nil || len(got) != 0 {
		t.Errorf("of no volume: %+v, %v", got, err)
	}
	in.Options.HostPaths = map[string]containerv1.Share{"v": {Name: containerv1.VolumeName("data")}}
	if _, err := bareDisks(in); !errors.Is(err, oci.ErrInvalid) {
		t.Errorf("without volumes: %v", err)
	}
	in.Bare = func(volume string) error {
		if volume != "data" {
			return errBare
		}
		return nil
	}
	got, err := bareDisks(in)
	want := []containerv1.Mount{{Destination: "/dev/x", Source: containerv1.Block{Name: "volume:data", Access: "rw", Mode: 0o660}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%s, %v", diff, err)
	}
	in.Options.HostPaths["v"] = containerv1.Share{Name: containerv1.VolumeName("other")}
	if _, err := bareDisks(in); !errors.Is(err, errBare) {
		t.Errorf("of a volume with a file system: %v", err)
	}
}

// TestNamedVolume: a mount of a named volume has the volume's kind and the pod's group.
func TestNamedVolume(t *testing.T) {
	in := Input{Volumes: layout.Dirs{Own: "/own"}, Named: func(volume, cache string) (containerv1.Source, error) {
		return containerv1.Share{Name: containerv1.VolumeName(volume), Cache: cache}, nil
	}}
	in.Options.FSGroup = 7
	in.Options.HostPaths = map[string]containerv1.Share{"v": {Name: containerv1.VolumeName("data"), Cache: "none"}}
	got, err := volume(&runtimeapi.Mount{HostPath: "/own/u/kubernetes.io~host-path/v/a/b", ContainerPath: "/x", Readonly: true}, in)
	want := containerv1.Mount{
		Destination: "/x", Source: containerv1.Share{Name: "volume:data", Cache: "none"}, SubPath: "a/b", Group: 7,
		Options: []string{"rbind", "rprivate", "ro"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%s, %v", diff, err)
	}
}

// TestDiskOfAClaim: the file system of a host's block device is mounted in the VM, with the pod's group.
func TestDiskOfAClaim(t *testing.T) {
	in := Input{Volumes: layout.Dirs{Own: "/own"}}
	in.Options.FSGroup = 7
	in.Options.HostPaths = map[string]containerv1.Share{"v": {Name: "/dev/loop0"}}
	in.Options.Disks = map[string]containerv1.Block{"v": {Name: "/dev/loop0", FS: containerv1.FSExt4}}
	got, err := volume(&runtimeapi.Mount{HostPath: "/own/u/kubernetes.io~host-path/v/a", ContainerPath: "/x"}, in)
	want := containerv1.Mount{
		Destination: "/x", Source: containerv1.Block{Name: "/dev/loop0", FS: containerv1.FSExt4}, SubPath: "a", Group: 7,
		Options: []string{"rbind", "rprivate", "rw"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%s, %v", diff, err)
	}
}

// TestDeviceOfHostPath: a device from a pod's hostPath volume is the block device of the hostPath.
func TestDeviceOfHostPath(t *testing.T) {
	base, err := oci.New("id")
	if err != nil {
		t.Fatal(err)
	}
	in := having(&runtimeapi.Device{HostPath: "/own/u/kubernetes.io~host-path/v", ContainerPath: "/dev/x", Permissions: "r"})
	in.Volumes, in.Block = layout.Dirs{Own: "/own"}, blockNodes
	in.Options.HostPaths = map[string]containerv1.Share{"v": {Name: "/dev/loop0"}}
	got, err := devices(base.Linux, in)
	want := []containerv1.Mount{{Destination: "/dev/x", Group: 6, Source: containerv1.Block{
		Name: "/dev/loop0", Access: "r", Mode: 0o660, ReadOnly: true, Device: loop0,
	}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%s, %v", diff, err)
	}
}

// TestMountedDevice: a hostPath of a block device gives a container its node, and the disk itself only to a privileged
// container.
func TestMountedDevice(t *testing.T) {
	for _, tt := range []struct {
		privileged, readOnly bool
		access               string // empty for a node alone
	}{{}, {readOnly: true}, {privileged: true, access: "rwm"}, {privileged: true, readOnly: true, access: "r"}} {
		in := Input{Container: &runtimeapi.ContainerConfig{
			Command: []string{"true"},
			Mounts:  []*runtimeapi.Mount{{HostPath: "/pods/link", ContainerPath: "/disk", Readonly: tt.readOnly}},
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				Privileged: tt.privileged, NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			}},
		}, Block: blockNodes}
		out, mounts, err := Container(in)
		if err != nil {
			t.Fatal(err)
		}
		var disks []containerv1.Source
		for _, m := range mounts {
			disks = append(disks, m.Source)
		}
		var want []containerv1.Source
		mode, group := os.FileMode(0o660), uint32(6)
		nodes := []specs.LinuxDevice{{Path: "/disk", Type: "b", Major: 7, Minor: 3, FileMode: &mode, GID: &group}}
		if tt.access != "" {
			nodes = nil
			want = append(want, containerv1.Block{Name: "/pods/link", Access: tt.access, Mode: 0o660, ReadOnly: tt.readOnly, Device: loop0})
		}
		if diff := cmp.Diff(want, disks); diff != "" {
			t.Errorf("%+v: %s", tt, diff)
		}
		if diff := cmp.Diff(nodes, out.Linux.Devices); diff != "" {
			t.Errorf("%+v: %s", tt, diff)
		}
		for _, rule := range out.Linux.Resources.Devices {
			if rule.Allow && rule.Type == "b" && rule.Access != "m" {
				t.Errorf("%+v: the rule %+v", tt, rule)
			}
		}
	}
	in := having()
	in.Container.Command, in.Block = []string{"true"}, blockNodes
	in.Container.Mounts = []*runtimeapi.Mount{{HostPath: "/dead", ContainerPath: "/disk"}}
	if _, err := whole(in); !errors.Is(err, errSilent) || !strings.Contains(err.Error(), "/disk") {
		t.Errorf("without an answer: %v", err)
	}
}
