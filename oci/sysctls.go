package oci

import (
	"fmt"
	"slices"
	"strings"
)

// CheckSysctls checks the kernel parameters that a pod requests for its VM. It allows parameters that are namespaced on
// ordinary nodes, and those that size the kernel's memory, files and processes, which only the pod uses. It refuses all
// others with ErrNotSupported: some would let a container run programs as the VM's root, or disturb the agent.
func CheckSysctls(wish map[string]string) error {
	for key, value := range wish {
		// Both separators are in use. In a name with slashes, a dot is an ordinary character.
		name := key
		if !strings.Contains(name, "/") {
			name = strings.ReplaceAll(name, ".", "/")
		}
		if !namespaced(name) && !ofVM(name) || strings.Contains(name, "..") || strings.ContainsAny(value, "\n\x00") {
			return fmt.Errorf("%w: sysctl %.128q", ErrNotSupported, key)
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

// ofVM reports parameters that pods of an ordinary node share, but that a VM has for itself.
func ofVM(name string) bool {
	for _, prefix := range []string{"vm/", "fs/inotify/", "fs/epoll/", "fs/aio-", "fs/pipe-", "kernel/keys/", "kernel/sched_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"fs/file-max", "fs/nr_open", "kernel/pid_max", "kernel/threads-max"}, name)
}
