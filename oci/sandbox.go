package oci

import (
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sysctls are the kernel parameters of a pod, for its whole machine. Those that
// a pod's namespaces would hold elsewhere are allowed; any other is refused, as
// the machine's kernel is also the agent's.
func Sysctls(config *runtimeapi.PodSandboxConfig) (map[string]string, error) {
	out := make(map[string]string)
	for key, value := range config.GetLinux().GetSysctls() {
		// Both separators are in use; with slashes a dot belongs to a name.
		name := key
		if !strings.Contains(name, "/") {
			name = strings.ReplaceAll(name, ".", "/")
		}
		if !namespaced(name) || strings.Contains(name, "..") || strings.ContainsAny(value, "\n\x00") {
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
