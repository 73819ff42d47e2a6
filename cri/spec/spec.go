// Package spec translates the CRI's configuration of a container to the OCI
// runtime specification of package oci, which the guest's runtime carries out.
package spec

import (
	"fmt"
	"strconv"

	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// Input is what a container's specification is made from. Container is
// required; the others may be zero. Nothing of it is changed or kept.
type Input struct {
	ID        string // the container's id: names its cgroup
	Container *runtimeapi.ContainerConfig
	Sandbox   *runtimeapi.PodSandboxConfig
	Options   runtimev1.PodOptions       // of the pod
	Own       runtimev1.ContainerOptions // of the container
	Volumes   layout.Dirs                // that mounts are recognised in
	Image     imagev1.ImageConfig
	// Termination is where the container leaves its last words, if not at
	// /dev/termination-log.
	Termination string
	// Hosts is the /etc/hosts that the door has written; without Text the VM's own serves.
	Hosts Hosts
	// Named is what a named volume is mounted from, with that cache where it is a directory, and Bare
	// says that a volume is a bare disk, or what it is; nil has none.
	Named func(volume, cache string) (containerv1.Source, error)
	Bare  func(volume string) error
	// Block tells what a path of the host is, if it is that of a block device, and fails where
	// nobody can tell; nil has none.
	Block func(hostPath string) (node Node, ok bool, err error)
	// Seccomp is the profile of type Localhost that the container names.
	Seccomp *specs.LinuxSeccomp
}

// Hosts is the content of an /etc/hosts.
type Hosts struct {
	Text     string
	ReadOnly bool
}

// Container makes the specification. Errors are the caller's input's: they name
// the field and wrap oci.ErrInvalid or oci.ErrNotSupported.
//
// A user that is given by name, by the image or by RunAsUsername, is left in
// Process.User.Username as it is written ("name", "name:group", "1:2"): only the
// guest has the image's /etc/passwd. A third part, agentv1.StrictGroups, says that the groups
// in the image's /etc/group do not count.
func Container(in Input) (*specs.Spec, error) {
	if in.Container == nil {
		return nil, fmt.Errorf("%w: no container configuration", oci.ErrInvalid)
	}
	spec, err := oci.New(in.ID)
	if err != nil {
		return nil, err
	}
	if err := process(spec.Process, in); err != nil {
		return nil, err
	}
	var closed []specs.LinuxDevice
	if spec.Mounts, closed, err = mounts(spec.Mounts, in); err != nil {
		return nil, err
	}
	spec.Linux.Devices = append(spec.Linux.Devices, closed...)
	if err := linux(spec.Linux, in, spec.Process.Capabilities); err != nil {
		return nil, err
	}
	disks, err := devices(spec.Linux, in)
	if err != nil {
		return nil, err
	}
	spec.Mounts = append(spec.Mounts, disks...)
	security := in.Container.GetLinux().GetSecurityContext()
	spec.Root.Readonly = security.GetReadonlyRootfs()
	notes := map[string]string{}
	if security.GetPrivileged() {
		notes[agentv1.AllDevices] = "true"
	}
	if in.Own.StorageBytes > 0 {
		notes[agentv1.StorageLimit] = strconv.FormatInt(in.Own.StorageBytes, 10)
	}
	if len(notes) > 0 {
		spec.Annotations = notes
	}
	return spec, nil
}
