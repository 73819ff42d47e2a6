package oci

import (
	"fmt"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// forbidden are calls that are absent from the table of moby/profiles, and that containers are refused with EPERM, as
// in other runtimes. They act on resources that containers share, or have had too many vulnerabilities.
var forbidden = []string{
	"add_key", "get_kernel_syms", "io_uring_enter", "io_uring_register", "io_uring_setup", "kexec_file_load", "kexec_load", "keyctl",
	"migrate_pages", "move_pages", "nfsservctl", "pivot_root", "query_module", "request_key", "swapoff", "swapon", "_sysctl",
	"sysfs", "userfaultfd", "uselib", "ustat", "vm86", "vm86old",
}

// DefaultSeccomp returns the profile RuntimeDefault for a process with the bounding set caps, from the table of
// moby/profiles. A call that the table knows and does not allow is EPERM. An unknown call is ENOSYS, so that a newer C
// library falls back to an older call. It fails only if the kernel's version cannot be read.
func DefaultSeccomp(caps []string) (*specs.LinuxSeccomp, error) {
	process := &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps}}
	profile, err := seccomp.GetDefaultProfile(&specs.Spec{Process: process})
	if err != nil {
		return nil, fmt.Errorf("default seccomp profile: %w", err)
	}
	unknown, refused := uint(unix.ENOSYS), uint(unix.EPERM)
	profile.DefaultErrnoRet = &unknown
	decided := map[string]bool{}
	for _, rule := range profile.Syscalls {
		for _, name := range rule.Names {
			decided[name] = true
		}
	}
	denied := slices.Clone(forbidden)
	for _, rule := range seccomp.DefaultProfile().Syscalls {
		denied = append(denied, rule.Names...)
	}
	denied = slices.DeleteFunc(denied, func(name string) bool { return decided[name] })
	slices.Sort(denied)
	profile.Syscalls = append(profile.Syscalls, specs.LinuxSyscall{
		Names: slices.Compact(denied), Action: specs.ActErrno, ErrnoRet: &refused,
	})
	return profile, nil
}
