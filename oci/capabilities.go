package oci

import (
	"strings"

	"github.com/moby/sys/capability"
)

// DefaultCapabilities returns the default capabilities of a container, sorted by name.
func DefaultCapabilities() []string {
	return names(
		capability.CAP_AUDIT_WRITE, capability.CAP_CHOWN, capability.CAP_DAC_OVERRIDE, capability.CAP_FOWNER,
		capability.CAP_FSETID, capability.CAP_KILL, capability.CAP_MKNOD, capability.CAP_NET_BIND_SERVICE,
		capability.CAP_NET_RAW, capability.CAP_SETFCAP, capability.CAP_SETGID, capability.CAP_SETPCAP,
		capability.CAP_SETUID, capability.CAP_SYS_CHROOT,
	)
}

// AllCapabilities returns the guest kernel's capabilities, in the kernel's order.
func AllCapabilities() []string { return names(capability.ListKnown()...) }

// names returns the capabilities' names in the runtime specification.
func names(list ...capability.Cap) []string {
	out := make([]string, 0, len(list))
	for _, c := range list {
		out = append(out, "CAP_"+strings.ToUpper(c.String()))
	}
	return out
}
