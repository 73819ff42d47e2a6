package confine

import "golang.org/x/sys/unix"

// filter is a seccomp program. Between its rules the accumulator holds the call's number.
type filter []unix.SockFilter

// x32 marks the numbers of amd64's second system call table. unknown is the first number that this package has not
// reviewed (setxattrat). All architectures number new calls alike.
const (
	x32     = 0x40000000
	unknown = 463
)

// Offsets within the kernel's struct seccomp_data. The lower half of an argument comes first on every supported
// architecture. The kernel also uses only the lower half of all arguments that are compared here.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
	sizeofArg    = 8
)

const (
	opLoad    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opMask    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	opEqual   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opAtLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	opAny     = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	opReturn  = unix.BPF_RET | unix.BPF_K
)

func refusal(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// newFilter refuses calls of another architecture, and answers ENOSYS to calls that this package does not know.
func newFilter(arch uint32) filter {
	return filter{
		{Code: opLoad, K: offsetArch},
		{Code: opEqual, K: arch, Jt: 1},
		refusal(unix.EPERM),
		{Code: opLoad, K: offsetNumber},
		{Code: opAtLeast, K: x32, Jf: 1},
		refusal(unix.EPERM),
		{Code: opAtLeast, K: unknown, Jf: 1},
		refusal(unix.ENOSYS),
	}
}

// refuse makes calls fail with errno.
func (f *filter) refuse(errno unix.Errno, numbers ...uint32) {
	for _, number := range numbers {
		*f = append(*f, unix.SockFilter{Code: opEqual, K: number, Jf: 1}, refusal(errno))
	}
}

// refuseIf refuses a call if test, with the argument in the accumulator, runs to its end. A test that fails jumps one
// instruction beyond its end.
func (f *filter) refuseIf(number uint32, arg int, test ...unix.SockFilter) {
	f.answerIf(refusal(unix.EPERM), number, arg, test...)
}

// answerIf is refuseIf with another answer.
func (f *filter) answerIf(answer unix.SockFilter, number uint32, arg int, test ...unix.SockFilter) {
	*f = append(*f,
		unix.SockFilter{Code: opEqual, K: number, Jf: uint8(len(test)) + 3},
		unix.SockFilter{Code: opLoad, K: uint32(offsetArgs + sizeofArg*arg)})
	*f = append(*f, test...)
	*f = append(*f, answer, unix.SockFilter{Code: opLoad, K: offsetNumber})
}

// refuseFlags refuses a call if the argument has any of the flags.
func (f *filter) refuseFlags(number uint32, arg int, flags uint32) {
	f.refuseIf(number, arg, unix.SockFilter{Code: opAny, K: flags, Jf: 1})
}

// requireFlag refuses a call if the argument lacks the flag.
func (f *filter) requireFlag(number uint32, arg int, flag uint32) {
	f.refuseIf(number, arg, unix.SockFilter{Code: opAny, K: flag, Jt: 1})
}

// refuseMasked refuses a call if the argument has this value under the mask.
func (f *filter) refuseMasked(number uint32, arg int, mask, value uint32) {
	f.refuseIf(number, arg, unix.SockFilter{Code: opMask, K: mask}, unix.SockFilter{Code: opEqual, K: value, Jf: 1})
}

// refuseValues refuses a call if the argument is one of the values.
func (f *filter) refuseValues(number uint32, arg int, values ...uint32) {
	for _, value := range values {
		f.refuseIf(number, arg, unix.SockFilter{Code: opEqual, K: value, Jf: 1})
	}
}

// refuseOthers refuses a call unless the argument is one of the values.
func (f *filter) refuseOthers(number uint32, arg int, values ...uint32) {
	f.answerOthers(refusal(unix.EPERM), number, arg, values...)
}

// answerOthers is refuseOthers with another answer.
func (f *filter) answerOthers(answer unix.SockFilter, number uint32, arg int, values ...uint32) {
	test := make([]unix.SockFilter, len(values))
	for i, value := range values {
		test[i] = unix.SockFilter{Code: opEqual, K: value, Jt: uint8(len(values) - i)}
	}
	f.answerIf(answer, number, arg, test...)
}

// permit allows calls, regardless of later rules.
func (f *filter) permit(numbers ...uint32) {
	for _, number := range numbers {
		*f = append(*f, unix.SockFilter{Code: opEqual, K: number, Jf: 1}, unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ALLOW})
	}
}

// allow ends the filter and allows all other calls.
func (f filter) allow() filter {
	return append(f, unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ALLOW})
}
