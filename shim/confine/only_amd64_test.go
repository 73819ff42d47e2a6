package confine

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyFilter tries every number of the table, and other architectures.
func TestOnlyFilter(t *testing.T) {
	const pid = 4711
	calls := []uint32{unix.SYS_READ, unix.SYS_WRITE, unix.SYS_EXIT_GROUP}
	filter := onlyFilter(amd64, pid, calls)
	for number := range uint32(600) {
		want := refused
		if slices.Contains(calls, number) {
			want = allowed
		} else if number == unix.SYS_CLONE3 || number >= unknown {
			want = lacking
		}
		if got := run(t, filter, call{number: number, arch: amd64}); got != want {
			t.Errorf("call %d: %#x, want %#x", number, got, want)
		}
		if got := run(t, filter, call{number: number, arch: unix.AUDIT_ARCH_I386}); got != refused {
			t.Errorf("call %d of another architecture: %#x", number, got)
		}
		if got := run(t, filter, call{number: number | x32, arch: amd64}); got != refused {
			t.Errorf("call %d of x32: %#x", number, got)
		}
	}
	for _, c := range []struct {
		what        string
		number, arg uint32
		allowed     bool
	}{
		{what: "a thread", number: unix.SYS_CLONE, arg: unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND, allowed: true},
		{what: "a process", number: unix.SYS_CLONE, arg: uint32(unix.SIGCHLD)},
		{what: "a signal to itself", number: unix.SYS_TGKILL, arg: pid, allowed: true},
		{what: "a signal to another", number: unix.SYS_TGKILL, arg: uint32(os.Getpid()) + pid},
	} {
		if got := run(t, filter, call{c.number, amd64, [6]uint32{c.arg}}); (got == allowed) != c.allowed {
			t.Errorf("%s: %#x", c.what, got)
		}
	}
}
