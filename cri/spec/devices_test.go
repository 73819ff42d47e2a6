package spec

import (
	"errors"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/oci"
)

func TestDevices(t *testing.T) {
	t.Parallel()
	base, err := oci.New("id")
	if err != nil {
		t.Fatal(err)
	}
	rules := len(base.Linux.Resources.Devices)
	err = devices(base.Linux, []*runtimeapi.Device{
		{HostPath: "/dev/null", ContainerPath: "/dev/null"}, {HostPath: "/dev/fuse", ContainerPath: "/dev/card/../fuse", Permissions: "rw"},
		{HostPath: "/dev/zero", ContainerPath: "/x"}, {HostPath: "/dev/full", ContainerPath: "/x"},
	})
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
	} {
		if err := devices(base.Linux, []*runtimeapi.Device{tt.device}); !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%v: %v", tt.device, err)
		}
	}
}
