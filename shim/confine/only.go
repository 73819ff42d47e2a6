package confine

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Only leaves this process nothing but calls, by their numbers, for good: a wall
// for a program that needs few and knows them all. Beside them it may make
// threads, and signal itself; no descriptor signals anybody. Of mmap, if it is among
// them, no mapping is left that the limits of a process do not count, neither of
// shared memory nor of stacks; of fallocate, which can take room beyond the limit of
// a file's size, the giving back of room.
func Only(calls []uint32, exceptions ...Exception) error {
	pid := uint32(os.Getpid())
	only := func(arch uint32, _ Policy) filter { return onlyFilter(arch, pid, calls, exceptions) }
	return install(only, Policy{}, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// Exception is from what Only does with the arguments of calls.
type Exception int

// AnyFallocate lets fallocate do all that it can.
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
	f.refuse(unix.ENOSYS, unix.SYS_CLONE3) // its flags lie where no filter can look
	return append(f, refusal(unix.EPERM))
}
