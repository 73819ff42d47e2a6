package confine

import "golang.org/x/sys/unix"

// filter is a program of seccomp. Between its rules the accumulator holds the
// call's number.
type filter []unix.SockFilter

// x32 marks the numbers of amd64's second table of system calls.
const x32 = 0x40000000

// Offsets within the kernel's struct seccomp_data. Of the first argument it is
// the lower half, which comes first on every architecture that there is a
// filter for.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArg    = 16
)

const (
	opLoad    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opEqual   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opAtLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	opAny     = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	opReturn  = unix.BPF_RET | unix.BPF_K
)

func refusal(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// newFilter refuses calls of another architecture.
func newFilter(arch uint32) filter {
	return filter{
		{Code: opLoad, K: offsetArch},
		{Code: opEqual, K: arch, Jt: 1},
		refusal(unix.EPERM),
		{Code: opLoad, K: offsetNumber},
		{Code: opAtLeast, K: x32, Jf: 1},
		refusal(unix.EPERM),
	}
}

// refuse lets a call fail with errno.
func (f *filter) refuse(number uint32, errno unix.Errno) {
	*f = append(*f, unix.SockFilter{Code: opEqual, K: number, Jf: 1}, refusal(errno))
}

// refuseFlags lets a call fail whose first argument has any of the flags.
func (f *filter) refuseFlags(number, flags uint32) {
	*f = append(*f,
		unix.SockFilter{Code: opEqual, K: number, Jf: 4},
		unix.SockFilter{Code: opLoad, K: offsetArg},
		unix.SockFilter{Code: opAny, K: flags, Jf: 1},
		refusal(unix.EPERM),
		unix.SockFilter{Code: opLoad, K: offsetNumber},
	)
}

// refuseOthers lets a call fail whose first argument is none of the values.
func (f *filter) refuseOthers(number uint32, values []int) {
	n := uint8(len(values))
	*f = append(*f,
		unix.SockFilter{Code: opEqual, K: number, Jf: n + 3},
		unix.SockFilter{Code: opLoad, K: offsetArg},
	)
	for i, value := range values {
		*f = append(*f, unix.SockFilter{Code: opEqual, K: uint32(value), Jt: n - uint8(i)})
	}
	*f = append(*f, refusal(unix.EPERM), unix.SockFilter{Code: opLoad, K: offsetNumber})
}

// allow ends the filter: everything else may be called.
func (f filter) allow() filter {
	return append(f, unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ALLOW})
}
