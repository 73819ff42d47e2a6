package oci

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultCapabilities are those a container has when it says nothing.
var defaultCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// allCapabilities are the guest kernel's, in the kernel's order.
var allCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN",
	"CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT",
	"CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
	"CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL",
	"CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",
	"CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
}

// capabilities applies the CRI's rules: dropping ALL empties the set and adding
// ALL fills it before single names count, and of a single name that is in both
// lists the drop wins. A privileged process has every one, whatever it asks for.
func capabilities(security *runtimeapi.LinuxContainerSecurityContext) (*specs.LinuxCapabilities, error) {
	if security.GetPrivileged() {
		all := func() []string { return slices.Clone(allCapabilities) }
		return &specs.LinuxCapabilities{Bounding: all(), Effective: all(), Permitted: all()}, nil
	}
	wish := security.GetCapabilities()
	add, err := names(wish.GetAddCapabilities())
	if err != nil {
		return nil, err
	}
	drop, err := names(wish.GetDropCapabilities())
	if err != nil {
		return nil, err
	}
	ambient, err := names(wish.GetAddAmbientCapabilities())
	if err != nil {
		return nil, err
	}
	have := slices.Clone(defaultCapabilities)
	if slices.Contains(drop, "ALL") {
		have = nil
	}
	if slices.Contains(add, "ALL") {
		have = slices.Clone(allCapabilities)
	}
	have = append(have, slices.Concat(add, ambient)...)
	have = slices.DeleteFunc(have, func(name string) bool { return name == "ALL" || slices.Contains(drop, name) })
	ambient = slices.DeleteFunc(ambient, func(name string) bool { return name == "ALL" || slices.Contains(drop, name) })
	slices.Sort(have)
	have = slices.Compact(have)
	if have == nil {
		have = []string{}
	}
	set := &specs.LinuxCapabilities{Bounding: have, Effective: slices.Clone(have), Permitted: slices.Clone(have)}
	if len(ambient) > 0 {
		// An ambient capability must be inheritable too.
		set.Ambient, set.Inheritable = ambient, slices.Clone(ambient)
	}
	return set, nil
}

// names gives capabilities their full upper-case names and refuses unknown ones.
func names(list []string) ([]string, error) {
	var out []string
	for _, name := range list {
		full := strings.ToUpper(name)
		if full == "ALL" {
			out = append(out, full)
			continue
		}
		if !strings.HasPrefix(full, "CAP_") {
			full = "CAP_" + full
		}
		if !slices.Contains(allCapabilities, full) {
			return nil, fmt.Errorf("%w: unknown capability %q", ErrInvalid, name)
		}
		out = append(out, full)
	}
	return out, nil
}
