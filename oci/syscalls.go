package oci

// ordinarySyscalls are those that any process may call: they act on what the
// process has itself, or the kernel checks their subject.
const ordinarySyscalls = `
accept accept4 access adjtimex alarm arch_prctl bind brk
cachestat capget capset chdir chmod chown chown32 clock_adjtime clock_adjtime64 clock_getres clock_getres_time64
clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close close_range connect copy_file_range creat
dup dup2 dup3
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
execve execveat exit exit_group
faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32
fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64
fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake
futimesat
get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32
getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday
getuid getuid32 getxattr getxattrat
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc
kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listmount
listxattr listxattrat llistxattr lremovexattr lseek _llseek lsetxattr lsm_get_self_attr lsm_list_modules lstat lstat64
madvise map_shadow_stack mbind membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall
mmap mmap2 modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend
mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
name_to_handle_at nanosleep _newselect newfstatat
open openat openat2
pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64
preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64
pwritev pwritev2
read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr
removexattrat rename renameat renameat2 restart_syscall rmdir riscv_hwprobe rseq rt_sigaction rt_sigpending
rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler
sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg
sendto set_mempolicy set_mempolicy_home_node set_robust_list set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid
setgid32 setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid
setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl shmdt
shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice stat stat64 statfs
statfs64 statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo
tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime
timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill
truncate truncate64
ugetrlimit umask uname unlink unlinkat uretprobe utime utimensat utimensat_time64 utimes
vfork vmsplice wait4 waitid waitpid write writev`

// guardedSyscalls are those that the kernel guards by a capability. The filter
// guards them once more, so that most of a process's way to the kernel is shut.
var guardedSyscalls = []struct{ capability, names string }{
	{"CAP_DAC_READ_SEARCH", "open_by_handle_at"},
	{"CAP_SYS_ADMIN", `bpf fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie lsm_set_self_attr mount
		mount_setattr move_mount open_tree open_tree_attr perf_event_open pivot_root quotactl quotactl_fd setdomainname sethostname
		syslog umount umount2`},
	{"CAP_BPF", "bpf"},
	{"CAP_PERFMON", "perf_event_open"},
	{"CAP_SYS_BOOT", "reboot"},
	{"CAP_SYS_CHROOT", "chroot"},
	{"CAP_SYS_MODULE", "delete_module finit_module init_module"},
	{"CAP_SYS_NICE", "migrate_pages move_pages"},
	{"CAP_SYS_PACCT", "acct"},
	{"CAP_SYS_PTRACE", "kcmp pidfd_getfd process_madvise"},
	{"CAP_SYS_RAWIO", "ioperm iopl"},
	{"CAP_SYS_TIME", "clock_settime clock_settime64 settimeofday stime"},
	{"CAP_SYS_TTY_CONFIG", "vhangup"},
	{"CAP_SYSLOG", "syslog"},
}

// forbiddenSyscalls are refused to everyone: their subjects are not divided
// among containers, or too much was found wrong with them.
const forbiddenSyscalls = `
add_key get_kernel_syms io_uring_enter io_uring_register io_uring_setup kexec_file_load kexec_load keyctl
nfsservctl query_module request_key swapoff swapon _sysctl sysfs userfaultfd uselib ustat vm86 vm86old`
