package confine

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// run interprets the filter, as the kernel would, for one call.
func run(t *testing.T, filter filter, number, arch, arg uint32) uint32 {
	t.Helper()
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
			a = map[uint32]uint32{offsetNumber: number, offsetArch: arch, offsetArg: arg}[in.K]
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

// TestFilter tries every number of the table, and other architectures.
func TestFilter(t *testing.T) {
	const arch = unix.AUDIT_ARCH_X86_64
	filter := processFilter(arch)
	refuse := unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	for number := range uint32(600) {
		want := uint32(unix.SECCOMP_RET_ALLOW)
		if slices.Contains(denied, number) {
			want = refuse
		} else if number == unix.SYS_CLONE3 {
			want = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		}
		if got := run(t, filter, number, arch, 0); got != want {
			t.Errorf("call %d: %#x, want %#x", number, got, want)
		}
		if got := run(t, filter, number, unix.AUDIT_ARCH_I386, 0); got != refuse {
			t.Errorf("call %d of another architecture: %#x", number, got)
		}
		if got := run(t, filter, number|x32, arch, 0); got != refuse {
			t.Errorf("call %d of x32: %#x", number, got)
		}
	}
}

// TestCloneFilter: threads and children are made, namespaces are not.
func TestCloneFilter(t *testing.T) {
	const arch = unix.AUDIT_ARCH_X86_64
	for flags, want := range map[uint32]uint32{
		unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND:   unix.SECCOMP_RET_ALLOW,
		unix.CLONE_VFORK | unix.CLONE_VM | uint32(unix.SIGCHLD):  unix.SECCOMP_RET_ALLOW,
		unix.CLONE_NEWUSER | uint32(unix.SIGCHLD):                unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM),
		unix.CLONE_NEWNET | unix.CLONE_VM:                        unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM),
		unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM),
	} {
		if got := run(t, processFilter(arch), unix.SYS_CLONE, arch, flags); got != want {
			t.Errorf("clone with %#x: %#x, want %#x", flags, got, want)
		}
	}
}

// TestSocketFilter: a machine makes sockets of its families only, and no pair.
func TestSocketFilter(t *testing.T) {
	const arch = unix.AUDIT_ARCH_X86_64
	refuse := unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	for name, families := range map[string][]int{"user": {unix.AF_INET, unix.AF_INET6}, "none": nil} {
		f := childFilter(arch, families)
		for family := range uint32(64) {
			want := refuse
			if slices.Contains(families, int(family)) {
				want = unix.SECCOMP_RET_ALLOW
			}
			if got := run(t, f, unix.SYS_SOCKET, arch, family); got != want {
				t.Errorf("%s: socket of family %d: %#x, want %#x", name, family, got, want)
			}
			if got := run(t, f, unix.SYS_READ, arch, family); got != unix.SECCOMP_RET_ALLOW {
				t.Errorf("%s: read: %#x", name, got)
			}
		}
		if got := run(t, f, unix.SYS_SOCKETPAIR, arch, unix.AF_UNIX); got != refuse {
			t.Errorf("%s: socketpair: %#x", name, got)
		}
		if got := run(t, f, unix.SYS_CLONE, arch, unix.CLONE_NEWUSER); got != refuse {
			t.Errorf("%s: clone: %#x", name, got)
		}
	}
}
