// Package policy says what a VM's process may still do, whoever starts it.
package policy

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// Machine is what QEMU needs of the host for m: the program with its libraries and
// firmware, the libraries that it is to load besides, and its devices. All else it inherits, open; sockets are for its
// user network.
func Machine(m hypervisor.VMConfig, program string, libraries ...string) confine.Policy {
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
		// QEMU's user network resolves names as the host does.
		p.Read = append(p.Read, "/etc/resolv.conf", "/run/systemd/resolve", "/run/resolvconf")
	}
	if m.Accel == hypervisor.KVM {
		p.Write, p.KVM = append(p.Write, "/dev/kvm"), true
		p.Signals = []uint32{uint32(unix.SIGUSR1)} // interrupts a thread that runs a virtual CPU
	}
	if m.Network == hypervisor.NetworkUser || m.Network == hypervisor.NetworkHostLoopback || m.Network == hypervisor.NetworkHost {
		p.Sockets = []uint32{unix.AF_INET, unix.AF_INET6}
	}
	return p
}

// sockets tells whether the machine's network is QEMU's own: a tap is a file like others.
func sockets(m hypervisor.VMConfig) bool {
	return m.Network != hypervisor.NetworkNone && m.Network != hypervisor.NetworkTap
}

// installed is where a program that lies outside the system's directories has what
// it needs: not all that lies beside them, which may be a user's home.
func installed(program string) []string {
	dirs := []string{filepath.Dir(program)}
	for _, name := range []string{"lib", "lib64", "libexec", "share", "pc-bios"} {
		dirs = append(dirs, filepath.Join(filepath.Dir(dirs[0]), name))
	}
	return dirs
}
