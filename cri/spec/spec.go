// Package spec translates the CRI's configuration of a container to an OCI runtime specification (package oci), which
// the guest's runtime executes.
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

// Input is the input of a container's specification. Only Container is required. Container does not change or keep any
// part of it.
type Input struct {
	ID        string // the container's id, which names its cgroup
	Container *runtimeapi.ContainerConfig
	Sandbox   *runtimeapi.PodSandboxConfig
	Options   runtimev1.PodOptions       // of the pod
	Own       runtimev1.ContainerOptions // of the container
	Volumes   layout.Dirs                // for recognising mounts
	Image     imagev1.ImageConfig
	// Termination is the path of the container's termination message, if it is not /dev/termination-log.
	Termination string
	// Hosts is the door's /etc/hosts; without Text the VM's own is used.
	Hosts Hosts
	// Named returns the source of a mount of a named volume; cache applies if the volume is a directory. Bare returns
	// an error if a named volume is not a block device. If nil, there are no such volumes.
	Named func(volume, cache string) (containerv1.Source, error)
	Bare  func(volume string) error
	// Block returns the node of a host path if it is a block device. It returns an error if that cannot be determined.
	// If nil, there are no block devices.
	Block func(hostPath string) (node Node, ok bool, err error)
	// Seccomp is the container's profile of type Localhost.
	Seccomp *specs.LinuxSeccomp
}

// Hosts is the content of an /etc/hosts.
type Hosts struct {
	Text     string
	ReadOnly bool
}

// Container returns the specification, and the mounts that follow its own. Errors concern the input: they name the field
// and wrap oci.ErrInvalid or oci.ErrNotSupported.
//
// A user given by name, by the image or RunAsUsername, stays as it is in Process.User.Username ("name", "name:group",
// "1:2"), because only the guest has the image's /etc/passwd. A third part, agentv1.StrictGroups, excludes the groups
// in the image's /etc/group.
func Container(in Input) (*specs.Spec, []containerv1.Mount, error) {
	if in.Container == nil {
		return nil, nil, fmt.Errorf("%w: no container configuration", oci.ErrInvalid)
	}
	spec, err := oci.New(in.ID)
	if err != nil {
		return nil, nil, err
	}
	if err := process(spec.Process, in); err != nil {
		return nil, nil, err
	}
	usual, volumes, closed, err := mounts(spec.Mounts, in)
	if err != nil {
		return nil, nil, err
	}
	spec.Mounts = usual
	spec.Linux.Devices = append(spec.Linux.Devices, closed...)
	if err := linux(spec.Linux, in, spec.Process.Capabilities); err != nil {
		return nil, nil, err
	}
	disks, err := devices(spec.Linux, in)
	if err != nil {
		return nil, nil, err
	}
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
	return spec, append(volumes, disks...), nil
}
