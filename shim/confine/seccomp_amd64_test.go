package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

const amd64 = unix.AUDIT_ARCH_X86_64

// Answers of a filter.
const (
	allowed = uint32(unix.SECCOMP_RET_ALLOW)
	refused = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	lacking = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// call is a system call in the form that a filter reads.
type call struct {
	number, arch uint32
	args         [6]uint32
}

// run interprets the filter for one call, like the kernel.
func run(t *testing.T, filter filter, c call) uint32 {
	t.Helper()
	memory := map[uint32]uint32{offsetNumber: c.number, offsetArch: c.arch}
	for i, arg := range c.args {
		memory[uint32(offsetArgs+sizeofArg*i)] = arg
	}
	var a uint32
	for pc := 0; pc < len(filter); pc++ {
		in := filter[pc]
		jump := func(taken bool) {
			if taken {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = memory[in.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d: unknown code %#x", pc, in.Code)
		}
	}
	t.Fatal("the filter runs off its end")
	return 0
}

// shimLacks are the calls that a shim must not make. It repeats the filter's lists, so that no call leaves them unnoticed.
var shimLacks = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_ADJTIMEX, unix.SYS_BPF, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_CHROOT,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FCHMODAT,
	unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FINIT_MODULE, unix.SYS_FREMOVEXATTR,
	unix.SYS_FSCONFIG, unix.SYS_FSETXATTR, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_FUTIMESAT,
	unix.SYS_INIT_MODULE, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_IOPRIO_SET, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP, unix.SYS_KCMP, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEYCTL, unix.SYS_KILL, unix.SYS_LCHOWN, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_LREMOVEXATTR, unix.SYS_LSETXATTR,
	unix.SYS_MIGRATE_PAGES, unix.SYS_MODIFY_LDT, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT,
	unix.SYS_MOVE_PAGES, unix.SYS_MQ_GETSETATTR, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_OPEN, unix.SYS_MQ_TIMEDRECEIVE,
	unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_UNLINK, unix.SYS_MSGCTL, unix.SYS_MSGGET, unix.SYS_MSGRCV, unix.SYS_MSGSND,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_PERSONALITY, unix.SYS_PIDFD_GETFD, unix.SYS_PIVOT_ROOT, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PROCESS_MRELEASE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PTRACE,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_REMOVEXATTR, unix.SYS_REQUEST_KEY,
	unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETATTR,
	unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SEMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP,
	unix.SYS_SEMTIMEDOP, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS, unix.SYS_SETPRIORITY,
	unix.SYS_SETTIMEOFDAY, unix.SYS_SETXATTR, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SHMDT, unix.SYS_SHMGET,
	unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSFS, unix.SYS_SYSLOG, unix.SYS_TKILL, unix.SYS_TRUNCATE,
	unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_USELIB, unix.SYS_USERFAULTFD, unix.SYS_USTAT, unix.SYS_UTIME,
	unix.SYS_UTIMENSAT, unix.SYS_UTIMES, unix.SYS_VHANGUP,
}

// TestFilterNumbers tries every number of the table, and other architectures, with arguments that every filter accepts.
func TestFilterNumbers(t *testing.T) {
	calls := slices.Concat(vmCalls, vmLegacy, socketCalls)
	policy := Policy{Sockets: []uint32{unix.AF_INET}, Signals: []uint32{uint32(unix.SIGUSR1)}}
	harmless := [6]uint32{2: uint32(unix.SIGUSR1)}
	special := map[uint32][6]uint32{
		unix.SYS_SOCKET: {unix.AF_INET}, unix.SYS_OPENAT: {2: unix.O_RDWR}, unix.SYS_CLONE: {unix.CLONE_THREAD},
		unix.SYS_PRCTL: {unix.PR_SET_NAME}, unix.SYS_IOCTL: {1: unix.BLKGETSIZE64}, unix.SYS_FCNTL: {1: unix.F_GETFL},
	}
	for _, tc := range []struct {
		name   string
		filter filter
		allows func(number uint32) bool
	}{
		{"process", processFilter(amd64, policy), func(n uint32) bool { return !slices.Contains(shimLacks, n) }},
		{"start", startFilter(amd64, policy), func(n uint32) bool { return slices.Contains(append(calls, starting...), n) }},
		{"VM", vmFilter(amd64, policy), func(n uint32) bool { return slices.Contains(calls, n) }},
	} {
		for number := range uint32(600) {
			want := refused
			args, ok := special[number]
			if !ok {
				args = harmless
			}
			switch {
			case number >= unknown, number == unix.SYS_CLONE3, number == unix.SYS_OPENAT2:
				want = lacking
			case number == unix.SYS_LISTEN && tc.name != "process":
				want = unix.SECCOMP_RET_ERRNO
			case tc.allows(number):
				want = allowed
			}
			if got := run(t, tc.filter, call{number, amd64, args}); got != want {
				t.Errorf("%s: call %d: %#x, want %#x", tc.name, number, got, want)
			}
			if got := run(t, tc.filter, call{number, unix.AUDIT_ARCH_I386, args}); got != refused {
				t.Errorf("%s: call %d of another architecture: %#x", tc.name, number, got)
			}
			if got := run(t, tc.filter, call{number | x32, amd64, args}); got != refused {
				t.Errorf("%s: call %d of x32: %#x", tc.name, number, got)
			}
		}
	}
}

// TestDocumented: docs/security.md states the number of calls that QEMU may make.
func TestDocumented(t *testing.T) {
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	const all = 335 + unknown - 424 // numbers in amd64's table, which has a gap
	calls := slices.Concat(vmCalls, vmLegacy)
	want := fmt.Sprintf("%d of the %d system calls", len(calls), all)
	if !strings.Contains(string(text), want) {
		t.Errorf("docs/security.md does not say %q", want)
	}
	slices.Sort(calls)
	if once := len(slices.Compact(slices.Clone(calls))); once != len(calls) {
		t.Errorf("%d calls are listed twice", len(calls)-once)
	}
}

// TestFilterArguments tries the calls that depend on an argument.
func TestFilterArguments(t *testing.T) {
	internet := Policy{Sockets: []uint32{unix.AF_INET, unix.AF_INET6}}
	kvm := Policy{Signals: []uint32{uint32(unix.SIGUSR1)}, KVM: true}
	filters := map[string]filter{
		"process":                processFilter(amd64, Policy{}),
		"process with a network": processFilter(amd64, internet),
		"start":                  startFilter(amd64, Policy{}),
		"VM with a network":      vmFilter(amd64, internet),
		"VM with KVM":            vmFilter(amd64, kvm),
	}
	all := []string{"process", "process with a network", "start", "VM with a network", "VM with KVM"}
	networked := []string{"process with a network", "VM with a network"}
	kvms := []string{"process", "process with a network", "VM with KVM"}
	for _, tc := range []struct {
		name    string
		number  uint32
		args    [6]uint32
		allowed []string
	}{
		{"a thread", unix.SYS_CLONE, [6]uint32{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, all},
		{"a child", unix.SYS_CLONE, [6]uint32{unix.CLONE_VFORK | unix.CLONE_VM | uint32(unix.SIGCHLD)}, all[:3]},
		{"a child with memory of its own", unix.SYS_CLONE, [6]uint32{uint32(unix.SIGCHLD)}, all[:2]},
		{"a program", unix.SYS_EXECVE, [6]uint32{}, all[:3]},
		{"a user namespace", unix.SYS_CLONE, [6]uint32{unix.CLONE_NEWUSER | uint32(unix.SIGCHLD)}, nil},
		{"a network namespace", unix.SYS_CLONE, [6]uint32{unix.CLONE_NEWNET | unix.CLONE_VM}, nil},
		{"namespaces", unix.SYS_CLONE, [6]uint32{unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS}, nil},

		{"an internet socket", unix.SYS_SOCKET, [6]uint32{unix.AF_INET}, networked},
		{"an internet socket of version 6", unix.SYS_SOCKET, [6]uint32{unix.AF_INET6}, networked},
		{"a unix socket", unix.SYS_SOCKET, [6]uint32{unix.AF_UNIX}, all[:2]},
		{"a netlink socket", unix.SYS_SOCKET, [6]uint32{unix.AF_NETLINK}, nil},
		{"a vsock", unix.SYS_SOCKET, [6]uint32{unix.AF_VSOCK}, nil},
		{"a pair of sockets", unix.SYS_SOCKETPAIR, [6]uint32{unix.AF_UNIX}, all[:2]},

		{"open", unix.SYS_OPENAT, [6]uint32{2: unix.O_RDWR | unix.O_CLOEXEC}, all},
		{"open a directory", unix.SYS_OPENAT, [6]uint32{2: unix.O_RDONLY | unix.O_DIRECTORY}, all},
		{"make a file", unix.SYS_OPENAT, [6]uint32{2: unix.O_RDWR | unix.O_CREAT}, all[:2]},
		{"make a nameless file", unix.SYS_OPENAT, [6]uint32{2: unix.O_RDWR | unix.O_TMPFILE}, all[:2]},
		{"empty a file", unix.SYS_OPENAT, [6]uint32{2: unix.O_WRONLY | unix.O_TRUNC}, all[:2]},
		{"empty a file that is open for reading", unix.SYS_OPENAT, [6]uint32{2: unix.O_RDONLY | unix.O_TRUNC | unix.O_CLOEXEC}, nil},
		{"empty a file by the old call", unix.SYS_OPEN, [6]uint32{1: unix.O_RDONLY | unix.O_TRUNC}, nil},
		{"make a file by the old call", unix.SYS_OPEN, [6]uint32{1: unix.O_RDWR | unix.O_CREAT}, all[:2]},

		{"its own limits", unix.SYS_PRLIMIT64, [6]uint32{0, unix.RLIMIT_NOFILE}, all},
		{"another's limits", unix.SYS_PRLIMIT64, [6]uint32{1, unix.RLIMIT_CPU}, nil},
		{"flags of a descriptor", unix.SYS_FCNTL, [6]uint32{1: unix.F_SETFL}, all},
		{"owner of a descriptor", unix.SYS_FCNTL, [6]uint32{1: unix.F_SETOWN}, nil},
		{"owner of a descriptor, extended", unix.SYS_FCNTL, [6]uint32{1: unix.F_SETOWN_EX}, nil},
		{"signal of a descriptor", unix.SYS_FCNTL, [6]uint32{1: unix.F_SETSIG}, nil},
		{"locks", unix.SYS_FCNTL, [6]uint32{1: unix.F_OFD_SETLK}, all},
		{"leases", unix.SYS_FCNTL, [6]uint32{1: unix.F_SETLEASE}, all[:2]},
		{"the name of a thread", unix.SYS_PRCTL, [6]uint32{unix.PR_SET_NAME}, all},
		{"let others trace it", unix.SYS_PRCTL, [6]uint32{unix.PR_SET_PTRACER}, all[:2]},
		{"run a virtual CPU", unix.SYS_IOCTL, [6]uint32{1: 0xae80}, kvms},
		{"the size of a disk", unix.SYS_IOCTL, [6]uint32{1: unix.BLKGETSIZE64}, all},
		{"partitions of a disk", unix.SYS_IOCTL, [6]uint32{1: unix.BLKPG}, all[:2]},
		{"another network card", unix.SYS_IOCTL, [6]uint32{1: unix.TUNSETIFF}, all[:2]},
		{"owner by ioctl", unix.SYS_IOCTL, [6]uint32{1: fioSetOwn}, nil},
		{"group by ioctl", unix.SYS_IOCTL, [6]uint32{1: unix.SIOCSPGRP}, nil},
		{"input for a terminal", unix.SYS_IOCTL, [6]uint32{1: unix.TIOCSTI}, nil},
		{"input for the console", unix.SYS_IOCTL, [6]uint32{1: unix.TIOCLINUX}, nil},

		{"the signal that interrupts a virtual CPU", unix.SYS_TGKILL, [6]uint32{2: uint32(unix.SIGUSR1)}, kvms},
		{"another signal", unix.SYS_TGKILL, [6]uint32{2: uint32(unix.SIGKILL)}, all[:2]},
		{"a pidfd", unix.SYS_PIDFD_OPEN, [6]uint32{1}, all[:2]},
		{"send", unix.SYS_SENDTO, [6]uint32{3: unix.MSG_NOSIGNAL}, all},
		{"connect by sending", unix.SYS_SENDTO, [6]uint32{3: unix.MSG_NOSIGNAL | unix.MSG_FASTOPEN}, nil},
		{"connect by a message", unix.SYS_SENDMSG, [6]uint32{2: unix.MSG_FASTOPEN}, nil},
		{"connect by messages", unix.SYS_SENDMMSG, [6]uint32{3: unix.MSG_FASTOPEN}, nil},
		{"a peer's credentials", unix.SYS_GETSOCKOPT, [6]uint32{1: unix.SOL_SOCKET, 2: unix.SO_PEERCRED}, all},
		{"a peer's pidfd", unix.SYS_GETSOCKOPT, [6]uint32{1: unix.SOL_SOCKET, 2: unix.SO_PEERPIDFD}, nil},
		{"pidfds of peers", unix.SYS_SETSOCKOPT, [6]uint32{1: unix.SOL_SOCKET, 2: unix.SO_PASSPIDFD}, nil},
		{"read", unix.SYS_READ, [6]uint32{}, all},
	} {
		for name, f := range filters {
			got := run(t, f, call{tc.number, amd64, tc.args})
			refuses := got == refused || tc.number == unix.SYS_IOCTL && got == unix.SECCOMP_RET_ERRNO|uint32(unix.ENOTTY)
			if works := slices.Contains(tc.allowed, name); works && got != allowed || !works && !refuses {
				t.Errorf("%s: %s: %#x", name, tc.name, got)
			}
		}
	}
}

// TestSealFilter: open files and sockets keep working, and new ones cannot be created.
func TestSealFilter(t *testing.T) {
	const self, child = 4711, 4712
	f := sealFilter(amd64, self, child)
	for _, tc := range []struct {
		name   string
		number uint32
		arg    uint32
		want   uint32
	}{
		{"accept", unix.SYS_ACCEPT4, 0, allowed},
		{"listen", unix.SYS_LISTEN, 0, allowed},
		{"a thread", unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND, allowed},
		{"a process", unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_VFORK | uint32(unix.SIGCHLD), refused},
		{"a process by fork", unix.SYS_FORK, 0, refused},
		{"a process by vfork", unix.SYS_VFORK, 0, refused},
		{"a program", unix.SYS_EXECVE, 0, refused},
		{"a program by its descriptor", unix.SYS_EXECVEAT, 0, refused},
		{"a unix socket", unix.SYS_SOCKET, unix.AF_UNIX, refused},
		{"an internet socket", unix.SYS_SOCKET, unix.AF_INET, refused},
		{"a pair of sockets", unix.SYS_SOCKETPAIR, unix.AF_UNIX, refused},
		{"connect", unix.SYS_CONNECT, 0, refused},
		{"bind", unix.SYS_BIND, 0, refused},
		{"watch a file", unix.SYS_INOTIFY_ADD_WATCH, 0, refused},
		{"a signal to itself", unix.SYS_TGKILL, self, allowed},
		{"a signal to another", unix.SYS_TGKILL, child, refused},
		{"a pidfd of the VM", unix.SYS_PIDFD_OPEN, child, allowed},
		{"a pidfd of another", unix.SYS_PIDFD_OPEN, 1, refused},
	} {
		if got := run(t, f, call{tc.number, amd64, [6]uint32{tc.arg}}); got != tc.want {
			t.Errorf("%s: %#x, want %#x", tc.name, got, tc.want)
		}
	}
}
