package confine

import "golang.org/x/sys/unix"

// denied are the system calls that fail with EPERM in the shim: calls that it never needs, and calls that affect other
// processes or unopened files. A list of allowed calls would be tighter, but it would depend on the version of Go. QEMU
// has such a list (vmCalls). deniedLegacy holds the calls of old architectures.
var denied = []uint32{
	// Kernel interfaces with a large attack surface.
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_ADJTIMEX, unix.SYS_BPF, unix.SYS_CHROOT,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE,
	unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MOUNT,
	unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_PERSONALITY, unix.SYS_PIVOT_ROOT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME,
	unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON,
	unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_USERFAULTFD,
	unix.SYS_VHANGUP,
	// Other processes of the same user. The shim needs tgkill and pidfds.
	unix.SYS_KCMP, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_PTRACE, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETAFFINITY,
	unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER,
	// Shared memory and queues with names.
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SHMDT,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE,
	unix.SYS_MQ_NOTIFY, unix.SYS_MQ_GETSETATTR,
	// Changes of unopened files. Landlock has no rule for these, except for truncate from version 3 on.
	unix.SYS_TRUNCATE, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
	unix.SYS_UTIMENSAT, unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
}

// newNamespaces are the flags of clone that create namespaces. A process has all capabilities in a new user namespace.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// newFiles are the flags of open that create or empty a file.
const newFiles = unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY

// fioSetOwn is FIOSETOWN.
const fioSetOwn = 0x8901
