package oci

import (
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sysctls are the kernel parameters of a pod, for its whole machine. Those that
// a pod's namespaces would hold elsewhere are allowed, and those of the kernel's
// memory, files and processes, which size what the pod alone uses. Any other is
// refused: with some of them a container would run its own program as the machine's
// root, or take the agent's kernel away from it.
func Sysctls(config *runtimeapi.PodSandboxConfig) (map[string]string, error) {
	out := make(map[string]string)
	for key, value := range config.GetLinux().GetSysctls() {
		// Both separators are in use; with slashes a dot belongs to a name.
		name := key
		if !strings.Contains(name, "/") {
			name = strings.ReplaceAll(name, ".", "/")
		}
		if !namespaced(name) && !ofMachine(name) || strings.Contains(name, "..") || strings.ContainsAny(value, "\n\x00") {
			return nil, fmt.Errorf("%w: sysctl %q", ErrNotSupported, key)
		}
		out[key] = value
	}
	return out, nil
}

func namespaced(name string) bool {
	switch name {
	case "kernel/sem", "kernel/shmall", "kernel/shmmax", "kernel/shmmni", "kernel/shm_rmid_forced",
		"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni":
		return true
	}
	return strings.HasPrefix(name, "net/") || strings.HasPrefix(name, "fs/mqueue/")
}

// ofMachine tells those that a node shares among its pods, and a machine does not.
func ofMachine(name string) bool {
	for _, prefix := range []string{"vm/", "fs/inotify/", "fs/epoll/", "fs/aio-", "fs/pipe-", "kernel/keys/", "kernel/sched_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"fs/file-max", "fs/nr_open", "kernel/pid_max", "kernel/threads-max"}, name)
}
