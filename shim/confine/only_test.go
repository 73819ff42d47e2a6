package confine

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyFilter tries every number of the table, and other architectures.
func TestOnlyFilter(t *testing.T) {
	const arch, pid = unix.AUDIT_ARCH_X86_64, 4711
	calls := []uint32{unix.SYS_READ, unix.SYS_WRITE, unix.SYS_EXIT_GROUP}
	filter := onlyFilter(arch, pid, calls)
	refuse := unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	for number := range uint32(600) {
		want := refuse
		if slices.Contains(calls, number) {
			want = unix.SECCOMP_RET_ALLOW
		} else if number == unix.SYS_CLONE3 {
			want = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		}
		if got := run(t, filter, number, arch, 0); got != want {
			t.Errorf("call %d: %#x, want %#x", number, got, want)
		}
		if got := run(t, filter, number, unix.AUDIT_ARCH_I386, 0); got != refuse {
			t.Errorf("call %d of another architecture: %#x", number, got)
		}
		if got := run(t, filter, number|x32, arch, 0); got != refuse {
			t.Errorf("call %d of x32: %#x", number, got)
		}
	}
	for _, c := range []struct {
		what      string
		call, arg uint32
		allowed   bool
	}{
		{what: "a thread", call: unix.SYS_CLONE, arg: unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND, allowed: true},
		{what: "a process", call: unix.SYS_CLONE, arg: uint32(unix.SIGCHLD)},
		{what: "a signal to itself", call: unix.SYS_TGKILL, arg: pid, allowed: true},
		{what: "a signal to another", call: unix.SYS_TGKILL, arg: uint32(os.Getpid()) + pid},
	} {
		if got := run(t, filter, c.call, arch, c.arg); (got == unix.SECCOMP_RET_ALLOW) != c.allowed {
			t.Errorf("%s: %#x", c.what, got)
		}
	}
}
