package confine

import (
	"os"

	"golang.org/x/sys/unix"
)

// Only leaves this process nothing but calls, by their numbers, for good: a wall
// for a program that needs few and knows them all. Beside them it may make
// threads, and signal itself.
func Only(calls []uint32) error {
	pid := uint32(os.Getpid())
	return install(func(arch uint32) filter { return onlyFilter(arch, pid, calls) }, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

func onlyFilter(arch, pid uint32, calls []uint32) filter {
	f := newFilter(arch)
	for _, number := range calls {
		f.permit(number)
	}
	f.permitIf(unix.SYS_CLONE, unix.SockFilter{Code: opAny, K: unix.CLONE_THREAD})
	f.permitIf(unix.SYS_TGKILL, unix.SockFilter{Code: opEqual, K: pid})
	f.refuse(unix.SYS_CLONE3, unix.ENOSYS) // its flags lie where no filter can look
	return append(f, refusal(unix.EPERM))
}

// permit lets a call be made.
func (f *filter) permit(number uint32) {
	*f = append(*f, unix.SockFilter{Code: opEqual, K: number, Jf: 1}, unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ALLOW})
}

// permitIf lets a call be made whose first argument passes the test.
func (f *filter) permitIf(number uint32, test unix.SockFilter) {
	test.Jf = 1
	*f = append(*f,
		unix.SockFilter{Code: opEqual, K: number, Jf: 4},
		unix.SockFilter{Code: opLoad, K: offsetArg},
		test,
		unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: opLoad, K: offsetNumber},
	)
}
