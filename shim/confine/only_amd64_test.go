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
	calls := []uint32{unix.SYS_READ, unix.SYS_WRITE, unix.SYS_MMAP, unix.SYS_FALLOCATE, unix.SYS_FCNTL, unix.SYS_EXIT_GROUP}
	filter := onlyFilter(amd64, pid, calls, nil)
	for number := range uint32(600) {
		want := refused
		if slices.Contains(calls, number) && number != unix.SYS_FALLOCATE {
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
		at          int
		allowed     bool
	}{
		{what: "a thread", number: unix.SYS_CLONE, arg: unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND, allowed: true},
		{what: "a process", number: unix.SYS_CLONE, arg: uint32(unix.SIGCHLD)},
		{what: "a signal to itself", number: unix.SYS_TGKILL, arg: pid, allowed: true},
		{what: "a signal to another", number: unix.SYS_TGKILL, arg: uint32(os.Getpid()) + pid},
		{what: "a descriptor's flags", number: unix.SYS_FCNTL, at: 1, arg: unix.F_SETFL, allowed: true},
		{what: "a lock", number: unix.SYS_FCNTL, at: 1, arg: unix.F_OFD_SETLK, allowed: true},
		{what: "a descriptor's signals", number: unix.SYS_FCNTL, at: 1, arg: unix.F_SETOWN},
		{what: "a descriptor's signals, of another kind", number: unix.SYS_FCNTL, at: 1, arg: unix.F_SETOWN_EX},
		{what: "which signal that is", number: unix.SYS_FCNTL, at: 1, arg: unix.F_SETSIG},
		{what: "memory", number: unix.SYS_MMAP, at: 3, arg: unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, allowed: true},
		{what: "shared memory", number: unix.SYS_MMAP, at: 3, arg: unix.MAP_SHARED | unix.MAP_ANONYMOUS},
		{what: "a shared file", number: unix.SYS_MMAP, at: 3, arg: unix.MAP_SHARED_VALIDATE},
		{what: "a stack", number: unix.SYS_MMAP, at: 3, arg: unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_GROWSDOWN},
		{what: "a hole", number: unix.SYS_FALLOCATE, at: 1, arg: unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, allowed: true},
		{what: "room", number: unix.SYS_FALLOCATE, at: 1},
		{what: "room beyond the end", number: unix.SYS_FALLOCATE, at: 1, arg: unix.FALLOC_FL_KEEP_SIZE},
		{what: "another length", number: unix.SYS_FALLOCATE, at: 1, arg: unix.FALLOC_FL_INSERT_RANGE},
	} {
		var args [6]uint32
		args[c.at] = c.arg
		if got := run(t, filter, call{c.number, amd64, args}); (got == allowed) != c.allowed {
			t.Errorf("%s: %#x", c.what, got)
		}
	}
}
