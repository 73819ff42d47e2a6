package e2e

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// action is something that code in QEMU tries. It returns the result of the deciding system call.
type action struct {
	what string
	try  func(in *injected) int64
	why  string // why it may succeed
}

// call returns a single system call.
func call(number int, args ...any) func(*injected) int64 {
	return func(in *injected) int64 { return in.call(number, args...) }
}

func open(path string, flags int) func(*injected) int64 {
	return call(unix.SYS_OPENAT, unix.AT_FDCWD, path, flags, 0o600)
}

// with returns a call on a descriptor. open creates the descriptor, which stays open.
func with(open func(*injected) int64, number int, args ...any) func(*injected) int64 {
	return func(in *injected) int64 {
		fd := open(in)
		if fd < 0 {
			return fd
		}
		return in.call(number, append([]any{fd}, args...)...)
	}
}

// words encodes numbers as in the kernel's structures.
func words(values ...uint64) (b []byte) {
	for _, v := range values {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return b
}

// prey has the targets of the actions.
type prey struct {
	shim, engine, other                int // processes: of the pod, of the user, of another pod
	own, others                        string
	state, file, planted, engineSocket string
	port                               int // of a TCP server on the host's loopback
}

// files returns the actions on files by path.
func (p prey) files() []action {
	at := unix.AT_FDCWD
	return []action{
		{"read a program of the host", open("/usr/bin/env", unix.O_RDONLY), "QEMU loads its libraries and firmware"},
		{"read the processors in /sys", open("/sys/devices/system/cpu/online", unix.O_RDONLY), "QEMU's C library counts them"},
		{"write to /dev/null", open("/dev/null", unix.O_WRONLY), "it leads nowhere"},
		{"read another pod's arguments in /proc", open(fmt.Sprintf("/proc/%d/cmdline", p.other), unix.O_RDONLY), "no secret is in them"},
		{"read /etc/passwd", open("/etc/passwd", unix.O_RDONLY), ""},
		{"read /etc/shadow", open("/etc/shadow", unix.O_RDONLY), ""},
		{"read a file of the user's", open(p.file, unix.O_RDONLY), ""},
		{"list the state directory", open(p.state, unix.O_RDONLY|unix.O_DIRECTORY), ""},
		{"list its own pod's directory", open(p.own, unix.O_RDONLY|unix.O_DIRECTORY), ""},
		{"list another pod's directory", open(p.others, unix.O_RDONLY|unix.O_DIRECTORY), ""},
		{"list /proc", open("/proc", unix.O_RDONLY|unix.O_DIRECTORY), ""},
		{"read /proc/1/mem", open("/proc/1/mem", unix.O_RDONLY), ""},
		{"read its shim's environment", open(fmt.Sprintf("/proc/%d/environ", p.shim), unix.O_RDONLY), ""},
		{"read its shim's memory", open(fmt.Sprintf("/proc/%d/mem", p.shim), unix.O_RDONLY), ""},
		{"read another pod's memory", open(fmt.Sprintf("/proc/%d/mem", p.other), unix.O_RDONLY), ""},
		{"write to its own memory by /proc", open("/proc/self/mem", unix.O_RDWR), ""},
		{"write to /proc/sys", open("/proc/sys/kernel/core_pattern", unix.O_WRONLY), ""},
		{"write to QEMU's program", open("/usr/bin/qemu-system-x86_64", unix.O_WRONLY), ""},
		{"open /dev/mem", open("/dev/mem", unix.O_RDWR), ""},
		{"open /dev/kvm", open("/dev/kvm", unix.O_RDWR), ""},
		{"open /dev/net/tun", open("/dev/net/tun", unix.O_RDWR), ""},
		{"make a file in /tmp", open("/tmp/bulkhead-wall-test", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL), ""},
		{"make a file in its own pod's directory", open(p.own+"/new", unix.O_RDWR|unix.O_CREAT), ""},
		{"read a file of its own pod's directory", open(p.planted, unix.O_RDONLY), ""},
		{"rename a file of its own pod's directory", call(unix.SYS_RENAMEAT2, at, p.planted, at, p.planted+"2", 0), ""},
		{"link a file of its own pod's directory", call(unix.SYS_LINKAT, at, p.planted, at, p.planted+"3", 0), ""},
		{"make a symbolic link", call(unix.SYS_SYMLINKAT, "/etc", at, p.planted+"4"), ""},
		{"make a directory", call(unix.SYS_MKDIRAT, at, p.planted+"5", 0o700), ""},
		{"make a FIFO", call(unix.SYS_MKNODAT, at, p.planted+"6", unix.S_IFIFO|0o600, 0), ""},
		{"make a device", call(unix.SYS_MKNODAT, at, p.planted+"7", unix.S_IFBLK|0o600, 7<<8), ""},
		{"truncate a file of its pod's", call(unix.SYS_TRUNCATE, p.planted, 0), ""},
		{"change its mode (chmod)", call(unix.SYS_FCHMODAT, at, p.planted, 0o666), ""},
		{"change its times", call(unix.SYS_UTIMENSAT, at, p.planted, 0, 0), ""},
		{"give it an attribute (setxattr)", call(unix.SYS_SETXATTR, p.planted, "user.wall", "x", 1, 0), ""},
		{"give it to root (chown)", call(unix.SYS_FCHOWNAT, at, p.planted, 0, 0, 0), ""},
		{"remove it", call(unix.SYS_UNLINKAT, at, p.planted, 0), ""},
		{"watch /etc (inotify)", with(call(unix.SYS_INOTIFY_INIT1, 0), unix.SYS_INOTIFY_ADD_WATCH, "/etc", unix.IN_MODIFY), ""},
		{"watch /etc (fanotify)", call(unix.SYS_FANOTIFY_INIT, 0, 0), ""},
		{"name a file by a handle", func(in *injected) int64 {
			return in.call(unix.SYS_NAME_TO_HANDLE_AT, at, "/usr/bin/env", words(120), int64(in.scratch)+scratchSize/2, 0)
		}, ""},
		{"open a file by a handle", func(in *injected) int64 {
			root := in.call(unix.SYS_OPENAT, at, "/usr", unix.O_RDONLY)
			return in.call(unix.SYS_OPEN_BY_HANDLE_AT, root, words(8|1<<32, 2), unix.O_RDONLY)
		}, ""},
		{"chroot", call(unix.SYS_CHROOT, "/usr"), ""},
		{"mount", call(unix.SYS_MOUNT, "none", "/tmp", "tmpfs", 0, 0), ""},
		{"unmount", call(unix.SYS_UMOUNT2, "/proc", unix.MNT_DETACH), ""},
		{"pivot_root", call(unix.SYS_PIVOT_ROOT, "/tmp", "/tmp"), ""},
		{"open a file system (fsopen)", call(unix.SYS_FSOPEN, "tmpfs", 0), ""},
		{"copy a mount (open_tree)", call(unix.SYS_OPEN_TREE, at, "/usr", unix.OPEN_TREE_CLONE), ""},
	}
}
