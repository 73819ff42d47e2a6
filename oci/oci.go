// Package oci turns the CRI's configuration of a container into the OCI
// runtime specification that the guest's runtime carries out.
//
// The specification is for a container inside the pod's virtual machine: the
// machine is the pod, so network, IPC and UTS namespaces are the machine's own,
// and nothing in it names a path of the host. It keeps to runtime-spec 1.0.
package oci

import (
	"fmt"
	"strconv"

	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
)

// Version is the version of the runtime specification that is written.
const Version = "1.0.2"

// The types of mounts that the guest's agent resolves: their source is the
// volume's name. Beside the usual options they may have "group=GID" (fsGroup) and
// "subpath=PATH", an emptyDir also "medium=Memory", "size=BYTES" and "mode=OCTAL".
const (
	MountEmptyDir = "bulkhead.emptydir"
	// MountFiles is a volume whose files the engine has sent before.
	MountFiles = "bulkhead.files"
	// MountImage is an image; its source is the id, as that of a container's.
	MountImage = "bulkhead.image"
)

// MountTermination is the type of a mount that the guest's agent resolves: the
// file in which the container leaves its last words.
const MountTermination = "bulkhead.termination"

// PIDTarget followed by a container's id is the path of a PID namespace that
// the guest's agent resolves: that container's.
const PIDTarget = "bulkhead.container:"

// PIDPod is the path of the PID namespace that the pod's containers share.
const PIDPod = "bulkhead.pod"

// MountFile is the type of a mount of a file that the agent writes; its source is
// the content, and containers with the same content at the same place share it.
const MountFile = "bulkhead.file"

// AllDevices is an annotation of the specification, "true" where the agent gives
// the container every device of its machine.
const AllDevices = "io.bulkhead.all-devices"

// StorageLimit is an annotation of the specification: how many bytes the
// container's writable layer may hold.
const StorageLimit = "io.bulkhead.storage"

// Input is what a container's specification is made from. Container is
// required; the others may be zero. Nothing of it is changed or kept.
type Input struct {
	ID        string // the container's id: names its cgroup
	Container *runtimeapi.ContainerConfig
	Sandbox   *runtimeapi.PodSandboxConfig
	Image     imagev1.ImageConfig
	// Termination is where the container leaves its last words, if not at
	// /dev/termination-log.
	Termination string
	// Hosts is the content of /etc/hosts; empty is the machine's own.
	Hosts string
	// Seccomp is the profile of type Localhost that the container names.
	Seccomp *specs.LinuxSeccomp
}

// Spec makes the specification. Errors are the caller's input's: they name the
// field and wrap ErrInvalid or ErrNotSupported.
//
// A user that is given by name, by the image or by RunAsUsername, is left in
// Process.User.Username as it is written ("name", "name:group", "1:2"): only the
// guest has the image's /etc/passwd. A third part, StrictGroups, says that the groups
// in the image's /etc/group do not count.
func Spec(in Input) (*specs.Spec, error) {
	if in.Container == nil {
		return nil, fmt.Errorf("%w: no container configuration", ErrInvalid)
	}
	process, err := process(in)
	if err != nil {
		return nil, err
	}
	mounts, err := mounts(in)
	if err != nil {
		return nil, err
	}
	linux, err := linux(in, process.Capabilities)
	if err != nil {
		return nil, err
	}
	security := in.Container.GetLinux().GetSecurityContext()
	spec := &specs.Spec{
		Version: Version,
		Process: process,
		Root:    &specs.Root{Path: "rootfs", Readonly: security.GetReadonlyRootfs()},
		Mounts:  mounts,
		Linux:   linux,
	}
	notes := map[string]string{}
	if security.GetPrivileged() {
		notes[AllDevices] = "true"
	}
	if limit := in.Container.GetAnnotations()[annotations.Storage]; limit != "" {
		if n, err := strconv.ParseInt(limit, 10, 64); err != nil || n <= 0 {
			return nil, fmt.Errorf("%w: annotation %s=%q is no number of bytes", ErrInvalid, annotations.Storage, limit)
		}
		notes[StorageLimit] = limit
	}
	if len(notes) > 0 {
		spec.Annotations = notes
	}
	return spec, nil
}

// Exec makes the process of an exec in the container of spec: its environment,
// user, capabilities and directory with another command.
func Exec(spec *specs.Spec, command []string, tty bool) (*specs.Process, error) {
	if spec == nil || spec.Process == nil {
		return nil, fmt.Errorf("%w: the container has no process", ErrInvalid)
	}
	if len(command) == 0 || command[0] == "" {
		return nil, fmt.Errorf("%w: exec of an empty command", ErrInvalid)
	}
	process := *spec.Process
	process.Args = append([]string(nil), command...)
	process.Env = append([]string(nil), spec.Process.Env...)
	process.Terminal = tty
	if tty {
		process.Env = setDefault(process.Env, "TERM", "xterm")
	}
	return &process, nil
}
