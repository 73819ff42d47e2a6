package confine

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Only permanently restricts this process to calls, given by their numbers. It is for a program that needs a few known
// calls. The process may also create threads and signal itself, but not by descriptors. mmap, if allowed, refuses
// shared memory and stacks, which limits do not count. fallocate may only free space, because it can allocate beyond
// the limit of a file's size.
func Only(calls []uint32, exceptions ...Exception) error {
	pid := uint32(os.Getpid())
	only := func(arch uint32, _ Policy) filter { return onlyFilter(arch, pid, calls, exceptions) }
	return install(only, Policy{}, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// Exception lifts a restriction of Only on a call's arguments.
type Exception int

// AnyFallocate allows all uses of fallocate.
const AnyFallocate Exception = 1

func onlyFilter(arch, pid uint32, calls []uint32, exceptions []Exception) filter {
	f := newFilter(arch)
	f.requireFlag(unix.SYS_CLONE, 0, unix.CLONE_THREAD)
	f.refuseOthers(unix.SYS_TGKILL, 0, pid)
	f.refuseValues(unix.SYS_FCNTL, 1, unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG)
	f.refuseFlags(unix.SYS_MMAP, 3, unix.MAP_SHARED|unix.MAP_GROWSDOWN)
	if !slices.Contains(exceptions, AnyFallocate) {
		f.refuseOthers(unix.SYS_FALLOCATE, 1, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE)
	}
	f.permit(append([]uint32{unix.SYS_CLONE, unix.SYS_TGKILL}, calls...)...)
	f.refuse(unix.ENOSYS, unix.SYS_CLONE3) // a filter cannot read its flags
	return append(f, refusal(unix.EPERM))
}
