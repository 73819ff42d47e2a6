package confine

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NeverUsed are capabilities that no part of Bulkhead uses: over the kernel (except modules) and over the host's clock,
// logs and power.
var NeverUsed = []uint{
	unix.CAP_SYS_TIME, unix.CAP_WAKE_ALARM, unix.CAP_BLOCK_SUSPEND, unix.CAP_SYS_BOOT, unix.CAP_SYSLOG,
	unix.CAP_SYS_RAWIO, unix.CAP_SYS_PACCT, unix.CAP_SYS_TTY_CONFIG, unix.CAP_LEASE, unix.CAP_LINUX_IMMUTABLE,
	unix.CAP_AUDIT_CONTROL, unix.CAP_AUDIT_READ, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE,
	unix.CAP_IPC_OWNER, unix.CAP_NET_BROADCAST, unix.CAP_PERFMON,
}

// Without removes capabilities from this process and its future programs. A process that may not change its bounding
// set, such as an ordinary user's, keeps that set. The program must not use cgo.
func Without(capabilities []uint) error {
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{}
	if err := unix.Capget(header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	bounds := data[0].Effective&(1<<unix.CAP_SETPCAP) != 0
	for _, c := range capabilities {
		// A kernel without the capability has no bounding bit for it.
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); bounds && err == nil && has == 1 {
			if err := allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); err != nil {
				return fmt.Errorf("drop capability %d for good: %w", c, err)
			}
		}
		for _, set := range []*uint32{&data[c/32].Effective, &data[c/32].Permitted, &data[c/32].Inheritable} {
			*set &^= 1 << (c % 32)
		}
	}
	if err := allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}
