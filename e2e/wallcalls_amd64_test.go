package e2e

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// processes returns the actions on processes and their privileges.
func (p prey) processes() []action {
	const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM |
		unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID
	none := words(0)
	own := func(in *injected) int64 {
		return in.call(unix.SYS_OPENAT, unix.AT_FDCWD, "/proc/self/ns/net", unix.O_RDONLY)
	}
	return []action{
		{"make a thread", func(in *injected) int64 {
			memory := int64(in.scratch) + scratchSize/2
			return in.call(unix.SYS_CLONE, thread, memory, memory, memory, memory)
		}, "QEMU has several; the cgroup counts them"},
		{"memory that is written and executed", call(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, -1, 0), "TCG translates into such memory"},
		{"memory that is executed later (mprotect)", func(in *injected) int64 {
			return in.call(unix.SYS_MPROTECT, int64(in.scratch), 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC)
		}, "likewise"},
		{"fork", call(unix.SYS_FORK), ""},
		{"vfork", call(unix.SYS_VFORK), ""},
		{"a process by clone", call(unix.SYS_CLONE, int(unix.SIGCHLD), 0, 0, 0, 0), ""},
		{"a process by clone3", call(unix.SYS_CLONE3, words(0, 0, 0, 0, uint64(unix.SIGCHLD), 0, 0, 0), 64), ""},
		{"a process in a new user namespace", call(unix.SYS_CLONE, unix.CLONE_NEWUSER|int(unix.SIGCHLD), 0, 0, 0, 0), ""},
		{"leave its network namespace (unshare)", call(unix.SYS_UNSHARE, unix.CLONE_NEWNET), ""},
		{"enter a network namespace (setns)", with(own, unix.SYS_SETNS, unix.CLONE_NEWNET), ""},
		{"trace its shim", call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, p.shim, 0, 0), ""},
		{"trace another pod's QEMU", call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, p.other, 0, 0), ""},
		{"read its shim's memory (process_vm_readv)", p.foreign(unix.SYS_PROCESS_VM_READV), ""},
		{"write to its shim's memory (process_vm_writev)", p.foreign(unix.SYS_PROCESS_VM_WRITEV), ""},
		{"name its shim (pidfd_open)", call(unix.SYS_PIDFD_OPEN, p.shim, 0), ""},
		{"take a descriptor of its shim's (pidfd_getfd)", with(call(unix.SYS_PIDFD_OPEN, p.shim, 0), unix.SYS_PIDFD_GETFD, 0, 0), ""},
		{"signal its shim (kill)", call(unix.SYS_KILL, p.shim, 0), ""},
		{"signal its shim (tgkill)", call(unix.SYS_TGKILL, p.shim, p.shim, 0), ""},
		{"signal the engine", call(unix.SYS_KILL, p.engine, 0), ""},
		{"signal another pod's QEMU", call(unix.SYS_KILL, p.other, 0), ""},
		{"signal by a directory of /proc", with(open(fmt.Sprintf("/proc/%d", p.shim), unix.O_RDONLY|unix.O_DIRECTORY),
			unix.SYS_PIDFD_SEND_SIGNAL, 0, 0, 0), ""},
		{"signal by a descriptor (F_SETOWN)", call(unix.SYS_FCNTL, 0, unix.F_SETOWN, p.shim), ""},
		{"compare itself with its shim (kcmp)", func(in *injected) int64 { return in.call(unix.SYS_KCMP, in.pid, p.shim, 0, 0, 0) }, ""},
		{"its shim's limits (prlimit)", call(unix.SYS_PRLIMIT64, p.shim, unix.RLIMIT_NOFILE, 0, make([]byte, 16)), ""},
		{"real-time priority", call(unix.SYS_SCHED_SETSCHEDULER, 0, 1 /* SCHED_FIFO */, words(1)), ""},
		{"its shim's priority", call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, p.shim, 19), ""},
		{"its shim's CPUs", call(unix.SYS_SCHED_SETAFFINITY, p.shim, 8, words(1)), ""},
		{"become root (setuid)", call(unix.SYS_SETUID, 0), ""},
		{"become root (setresuid)", call(unix.SYS_SETRESUID, 0, 0, 0), ""},
		{"join root's group", call(unix.SYS_SETGROUPS, 1, none), ""},
		{"take all capabilities", call(unix.SYS_CAPSET, words(unix.LINUX_CAPABILITY_VERSION_3), words(1<<32-1, 1<<32-1, 0)), ""},
		{"leave no_new_privs", call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), ""},
	}
}

// foreign reads or writes a word of the shim's memory, at the address where Go's programs begin.
func (p prey) foreign(number int) func(*injected) int64 {
	return func(in *injected) int64 {
		return in.call(number, p.shim, words(in.scratch, 8), 1, words(0x400000, 8), 1, 0)
	}
}

// kernel returns the actions on the kernel and on named objects that processes share.
func (p prey) kernel() []action {
	return []action{
		{"load a program into the kernel (bpf)", call(unix.SYS_BPF, 0, words(2|4<<32, 4|1<<32), 16), ""},
		{"count events (perf_event_open)", call(unix.SYS_PERF_EVENT_OPEN, append(words(1|112<<32), make([]byte, 104)...), 0, -1, -1, 0), ""},
		{"serve page faults (userfaultfd)", call(unix.SYS_USERFAULTFD, 1), ""},
		{"io_uring", call(unix.SYS_IO_URING_SETUP, 4, make([]byte, 120)), ""},
		{"read keys (keyctl)", call(unix.SYS_KEYCTL, 0, -3, 1), ""},
		{"add a key", call(unix.SYS_ADD_KEY, "user", "wall", "x", 1, -3), ""},
		{"another kernel (kexec_load)", call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0), ""},
		{"a module (init_module)", call(unix.SYS_INIT_MODULE, "x", 1, ""), ""},
		{"a module (finit_module)", call(unix.SYS_FINIT_MODULE, 0, "", 0), ""},
		{"another personality", call(unix.SYS_PERSONALITY, 0x0040000), ""},
		{"ports of the processor (ioperm)", call(unix.SYS_IOPERM, 0x80, 1, 1), ""},
		{"segments of the processor (modify_ldt)", call(unix.SYS_MODIFY_LDT, 1, words(0, 0), 16), ""},
		{"read the kernel's log", call(unix.SYS_SYSLOG, 10, 0, 0), ""},
		{"reboot", call(unix.SYS_REBOOT, 0, 0, 0, 0), ""},
		{"swap", call(unix.SYS_SWAPON, p.planted, 0), ""},
		{"account for processes", call(unix.SYS_ACCT, 0), ""},
		{"name the host", call(unix.SYS_SETHOSTNAME, "wall", 4), ""},
		{"set the clock", call(unix.SYS_CLOCK_SETTIME, 0, words(0, 0)), ""},
		{"shared memory (shmget)", call(unix.SYS_SHMGET, 0, 4096, 0o600|unix.IPC_CREAT), ""},
		{"a queue (msgget)", call(unix.SYS_MSGGET, 0, 0o600|unix.IPC_CREAT), ""},
		{"a queue (mq_open)", call(unix.SYS_MQ_OPEN, "bulkhead-wall", unix.O_RDWR|unix.O_CREAT, 0o600, 0), ""},
	}
}

// sockets returns the actions on networks and sockets.
func (p prey) sockets() []action {
	host := netip.MustParseAddr("127.0.0.1").As4()
	loopback := append([]byte{unix.AF_INET, 0, byte(p.port >> 8), byte(p.port)}, append(host[:], make([]byte, 8)...)...)
	socket := func(family, kind int) func(*injected) int64 { return call(unix.SYS_SOCKET, family, kind, 0) }
	internet := func(in *injected) int64 {
		fd := in.call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)
		in.call(unix.SYS_SETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, words(1, 0), 16) // without an answer: EINPROGRESS
		return fd
	}
	local := func(path string) []byte { return append([]byte{unix.AF_UNIX, 0}, append([]byte(path), 0)...) }
	unixSocket := socket(unix.AF_UNIX, unix.SOCK_STREAM)
	connect := func(path string) func(*injected) int64 {
		return with(unixSocket, unix.SYS_CONNECT, local(path), len(local(path)))
	}
	return []action{
		{"an internet socket (TCP)", socket(unix.AF_INET, unix.SOCK_STREAM), "QEMU's user network is made of such, in the pods' namespace"},
		{"an internet socket (UDP)", socket(unix.AF_INET, unix.SOCK_DGRAM), "likewise"},
		{"connect to a server on the host's loopback", with(internet, unix.SYS_CONNECT, loopback, 16), ""},
		{"a raw socket", call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP), ""},
		{"a packet socket", socket(unix.AF_PACKET, unix.SOCK_RAW), ""},
		{"a netlink socket", socket(unix.AF_NETLINK, unix.SOCK_RAW), ""},
		{"a vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM), ""},
		{"the kernel's ciphers (AF_ALG)", socket(unix.AF_ALG, unix.SOCK_SEQPACKET), ""},
		{"a unix socket", unixSocket, ""},
		{"a pair of unix sockets", call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM, 0, make([]byte, 8)), ""},
		{"connect to the engine", connect(p.engineSocket), ""},
		{"connect to its own shim", connect(p.own + "/shim.sock"), ""},
		{"connect to another pod's shim", connect(p.others + "/shim.sock"), ""},
		{"connect to another pod's QEMU", connect(p.others + "/vm/qmp"), ""},
	}
}

// programs returns the actions that replace the program.
func (p prey) programs() []action {
	memory := func(in *injected) int64 {
		fd := in.call(unix.SYS_MEMFD_CREATE, "x", 0)
		if fd >= 0 {
			in.call(unix.SYS_WRITE, fd, "#!/usr/bin/true\n", 16)
		}
		return fd
	}
	return []action{
		{"a file in memory (memfd_create)", memory, ""},
		{"a program of the host (execve)", call(unix.SYS_EXECVE, "/usr/bin/true", words(0), words(0)), ""},
		{"a program in memory (execveat)", with(memory, unix.SYS_EXECVEAT, "", words(0), words(0), unix.AT_EMPTY_PATH), ""},
	}
}
