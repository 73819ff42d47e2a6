package launcher

import (
	"fmt"
	"slices"
)

// capabilities are OCI's.
type capabilities struct {
	Bounding    []string `json:"bounding"`
	Permitted   []string `json:"permitted"`
	Effective   []string `json:"effective"`
	Inheritable []string `json:"inheritable"`
	Ambient     []string `json:"ambient"`
}

// names are the capabilities by their numbers.
var names = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW",
	"CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT",
	"CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD",
	"CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG",
	"CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
}

// sets returns the sets in the order of the message. No capabilities at all is five empty sets.
func (c *capabilities) sets() (sets [5]uint64, err error) {
	if c == nil {
		return sets, nil
	}
	for i, set := range [][]string{c.Bounding, c.Permitted, c.Effective, c.Inheritable, c.Ambient} {
		for _, name := range set {
			n := slices.Index(names, name)
			if n < 0 {
				return sets, fmt.Errorf("%w: capability %.64q", ErrDeclined, name)
			}
			sets[i] |= 1 << n
		}
	}
	return sets, nil
}
