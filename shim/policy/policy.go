// Package policy defines the rights of a VM's process.
package policy

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// VM returns the rights that QEMU needs for m: its program, libraries and firmware, the additional libraries, and
// its devices. It inherits everything else as open files. Sockets are for its user network.
func VM(m hypervisor.VMConfig, program string, libraries ...string) confine.Policy {
	p := confine.Policy{
		Read: append([]string{
			"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache",
			"/sys/devices/system", "/sys/fs/cgroup", "/dev/urandom", "/dev/random",
		}, installed(program)...),
		Unlisted: []string{"/proc"},
		Write:    []string{"/dev/null", "/dev/zero"},
		NoTCP:    !sockets(m),
	}
	p.Read = append(p.Read, libraries...)
	if sockets(m) {
		// QEMU's user network uses the host's name resolution.
		p.Read = append(p.Read, "/etc/resolv.conf", "/run/systemd/resolve", "/run/resolvconf")
	}
	if m.Accel == hypervisor.KVM {
		p.Write, p.KVM = append(p.Write, "/dev/kvm"), true
		p.Signals = []uint32{uint32(unix.SIGUSR1)} // interrupts a virtual CPU's thread
	}
	if m.Network == hypervisor.NetworkUser || m.Network == hypervisor.NetworkHostLoopback || m.Network == hypervisor.NetworkHost {
		p.Sockets = []uint32{unix.AF_INET, unix.AF_INET6}
	}
	return p
}

// sockets reports whether QEMU's own network is used, which needs sockets. A tap is an inherited file.
func sockets(m hypervisor.VMConfig) bool {
	return m.Network != hypervisor.NetworkNone && !m.Network.Tap()
}

// installed returns the directories of a program outside the system's directories. It excludes other directories beside
// them, because they may be a user's home.
func installed(program string) []string {
	dirs := []string{filepath.Dir(program)}
	for _, name := range []string{"lib", "lib64", "libexec", "share", "pc-bios"} {
		dirs = append(dirs, filepath.Join(filepath.Dir(dirs[0]), name))
	}
	return dirs
}
