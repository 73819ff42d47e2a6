package oci

import (
	"fmt"
	"slices"
	"strings"
)

// CheckSysctls checks the kernel parameters that a pod wants for its VM. Those
// that a pod's namespaces hold elsewhere are allowed, and those of the kernel's
// memory, files and processes, which size what the pod alone uses. Any other is
// refused with ErrNotSupported: with some of them a container would run its own
// program as the VM's root, or take the agent's kernel away from it.
func CheckSysctls(wish map[string]string) error {
	for key, value := range wish {
		// Both separators are in use; with slashes a dot belongs to a name.
		name := key
		if !strings.Contains(name, "/") {
			name = strings.ReplaceAll(name, ".", "/")
		}
		if !namespaced(name) && !ofVM(name) || strings.Contains(name, "..") || strings.ContainsAny(value, "\n\x00") {
			return fmt.Errorf("%w: sysctl %q", ErrNotSupported, key)
		}
	}
	return nil
}

func namespaced(name string) bool {
	switch name {
	case "kernel/sem", "kernel/shmall", "kernel/shmmax", "kernel/shmmni", "kernel/shm_rmid_forced",
		"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni":
		return true
	}
	return strings.HasPrefix(name, "net/") || strings.HasPrefix(name, "fs/mqueue/")
}

// ofVM tells those that a node's pods share, and that a VM has for itself.
func ofVM(name string) bool {
	for _, prefix := range []string{"vm/", "fs/inotify/", "fs/epoll/", "fs/aio-", "fs/pipe-", "kernel/keys/", "kernel/sched_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"fs/file-max", "fs/nr_open", "kernel/pid_max", "kernel/threads-max"}, name)
}
