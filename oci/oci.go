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

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/annotations"
)

// Version is the version of the runtime specification that is written.
const Version = "1.0.2"

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
// guest has the image's /etc/passwd. A third part, agentv1.StrictGroups, says that the groups
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
		notes[agentv1.AllDevices] = "true"
	}
	if limit := in.Container.GetAnnotations()[annotations.Storage]; limit != "" {
		if n, err := strconv.ParseInt(limit, 10, 64); err != nil || n <= 0 {
			return nil, fmt.Errorf("%w: annotation %s=%q is no number of bytes", ErrInvalid, annotations.Storage, limit)
		}
		notes[agentv1.StorageLimit] = limit
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
