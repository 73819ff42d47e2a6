package oci

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/version"
	"github.com/bulkhead-project/bulkhead/oci"
)

// Features returns the features of the runtime, in the form of the specification.
func Features() *features.Features {
	yes, no := true, false
	hooks := []string{
		string(containerv1.Prestart), string(containerv1.CreateRuntime), string(containerv1.CreateContainer),
		string(containerv1.StartContainer), string(containerv1.Poststart), string(containerv1.Poststop),
	}
	return &features.Features{
		OCIVersionMin: "1.0.0", OCIVersionMax: SpecVersion, Hooks: hooks,
		MountOptions: []string{
			"bind", "rbind", "ro", "rro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec", "private", "rprivate", "slave", "rslave",
			"noatime", "relatime", "strictatime",
		},
		Linux: &features.Linux{
			Namespaces: []string{
				string(specs.PIDNamespace), string(specs.NetworkNamespace), string(specs.MountNamespace), string(specs.IPCNamespace),
				string(specs.UTSNamespace), string(specs.CgroupNamespace), string(specs.UserNamespace),
			},
			Capabilities: oci.AllCapabilities(),
			Cgroup:       &features.Cgroup{V1: &yes, V2: &yes, Systemd: &yes, SystemdUser: &no},
			Seccomp: &features.Seccomp{
				Enabled: &yes, Archs: []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"},
				Actions: []string{
					string(specs.ActAllow), string(specs.ActErrno), string(specs.ActKill), string(specs.ActKillProcess),
					string(specs.ActKillThread), string(specs.ActLog), string(specs.ActTrace), string(specs.ActTrap),
				},
			},
			Apparmor: &features.Apparmor{Enabled: &no},
			Selinux:  &features.Selinux{Enabled: &no},
			IntelRdt: &features.IntelRdt{Enabled: &no},
		},
		Annotations: map[string]string{"io.bulkhead.version": version.Version},
	}
}
