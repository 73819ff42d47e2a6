package oci

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	// Version is the written version of the runtime specification.
	Version = "1.0.2"
	// DefaultPath is the default PATH.
	DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// pidsLimit is the default limit of a container's processes: a fork bomb must leave the agent able to answer.
const pidsLimit = 16384

// New returns the specification of a default container. It runs as root with the default capabilities and the default
// seccomp profile. The VM's /dev/shm is the last mount, after the kernel's file systems. The last namespace is the
// container's own PID namespace. id names its cgroup; if it is empty, the runtime chooses. The caller may change the
// result. New fails like DefaultSeccomp.
func New(id string, args ...string) (*specs.Spec, error) {
	caps := &specs.LinuxCapabilities{Bounding: DefaultCapabilities(), Effective: DefaultCapabilities(), Permitted: DefaultCapabilities()}
	seccomp, err := DefaultSeccomp(caps.Bounding)
	if err != nil {
		return nil, err
	}
	pids := int64(pidsLimit)
	spec := &specs.Spec{
		Version: Version,
		Process: &specs.Process{
			Args: args, Env: []string{"PATH=" + DefaultPath}, Cwd: "/", Capabilities: caps, Rlimits: DefaultRlimits(),
		},
		Root:   &specs.Root{Path: "rootfs"},
		Mounts: mounts(),
		Linux: &specs.Linux{
			Namespaces:    []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}, {Type: specs.PIDNamespace}},
			Seccomp:       seccomp,
			Resources:     &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}, Devices: DefaultDeviceRules()},
			MaskedPaths:   MaskedPaths(),
			ReadonlyPaths: ReadonlyPaths(),
		},
	}
	if id != "" {
		spec.Linux.CgroupsPath = "/" + id
	}
	return spec, nil
}

// mounts returns the kernel's file systems and the VM's /dev/shm.
func mounts() []specs.Mount {
	mount := func(at, kind string, options ...string) specs.Mount {
		return specs.Mount{Destination: at, Type: kind, Source: kind, Options: options}
	}
	return []specs.Mount{
		mount("/proc", "proc", "nosuid", "noexec", "nodev"),
		mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
		mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
		mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
		mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
		mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", "ro"),
		{Destination: "/dev/shm", Type: "bind", Source: "/dev/shm", Options: []string{"rbind", "rw", "nosuid", "nodev", "noexec"}},
	}
}

// DefaultDeviceRules returns the rules of the device cgroup: the default devices only, and mknod of any.
func DefaultDeviceRules() []specs.LinuxDeviceCgroup {
	rule := func(kind string, major, minor int64, access string) specs.LinuxDeviceCgroup {
		rule := specs.LinuxDeviceCgroup{Allow: true, Type: kind, Access: access}
		if major >= 0 {
			rule.Major = &major
		}
		if minor >= 0 {
			rule.Minor = &minor
		}
		return rule
	}
	return []specs.LinuxDeviceCgroup{
		{Allow: false, Access: "rwm"},
		rule("c", -1, -1, "m"),
		rule("b", -1, -1, "m"),
		rule("c", 1, 3, "rwm"),    // null
		rule("c", 1, 5, "rwm"),    // zero
		rule("c", 1, 7, "rwm"),    // full
		rule("c", 1, 8, "rwm"),    // random
		rule("c", 1, 9, "rwm"),    // urandom
		rule("c", 5, 0, "rwm"),    // tty
		rule("c", 5, 1, "rwm"),    // console
		rule("c", 5, 2, "rwm"),    // ptmx
		rule("c", 136, -1, "rwm"), // pts
	}
}

// ConsoleSize returns the size of a terminal, or nil if it is unknown.
func ConsoleSize(width, height uint16) *specs.Box {
	if width == 0 || height == 0 {
		return nil
	}
	return &specs.Box{Width: uint(width), Height: uint(height)}
}

// Exec returns the process of an exec in the container of spec: the container's environment, user, capabilities and
// directory with another command. Errors match ErrInvalid.
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
	process.Terminal, process.ConsoleSize = tty, nil
	if tty {
		process.Env = DefaultEnv(process.Env, "TERM", "xterm")
	}
	return &process, nil
}
