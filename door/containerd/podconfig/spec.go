package podconfig

import (
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The CRI plugin's annotations of a bundle.
const (
	annotationType  = "io.kubernetes.cri.container-type"
	annotationID    = "io.kubernetes.cri.sandbox-id"
	annotationStart = "io.kubernetes.cri.sandbox-"
)

// Spec returns the specification of the sandbox's bundle, as containerd's CRI plugin writes it for a pause container. Its
// process never runs. netns is the path of the pod's network namespace; without one, a pod that does not have the host's
// network gets a namespace of its own. group is the cgroup of pods that name no parent. Of the pod's annotations, keep selects
// those in the bundle: users write them.
func (c Config) Spec(id, netns, group string, keep func(key string) bool) *specs.Spec {
	namespaces := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	if c.PID != Node {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	if c.IPC != Node {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.IPCNamespace})
	}
	if c.Network != Node {
		namespaces = append(namespaces,
			specs.LinuxNamespace{Type: specs.UTSNamespace}, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: netns})
	}
	s := &specs.Spec{
		Version:     specs.Version,
		Hostname:    c.Hostname,
		Root:        &specs.Root{Path: "rootfs", Readonly: true},
		Process:     &specs.Process{Args: []string{"/pause"}, Cwd: "/"},
		Annotations: c.annotations(id, keep),
		Linux:       &specs.Linux{Namespaces: namespaces, Sysctl: c.Sysctls, CgroupsPath: filepath.Join("/", group, id)},
	}
	if c.CgroupParent != "" {
		s.Linux.CgroupsPath = cgroupsPath(c.CgroupParent, id)
	}
	return s
}

func (c Config) annotations(id string, keep func(string) bool) map[string]string {
	a := map[string]string{}
	for key, text := range c.Annotations {
		if keep(key) {
			a[key] = text
		}
	}
	a[annotationType], a[annotationID] = "sandbox", id
	for key, text := range map[string]string{"name": c.Name, "namespace": c.Namespace, "uid": c.UID, "log-directory": c.LogDirectory} {
		a[annotationStart+key] = text
	}
	for key, n := range map[string]int64{
		"cpu-period": c.Resources.CPUPeriod, "cpu-quota": c.Resources.CPUQuota,
		"cpu-shares": c.Resources.CPUShares, "memory": c.Resources.MemoryLimit,
	} {
		if n != 0 {
			a[annotationStart+key] = strconv.FormatInt(n, 10)
		}
	}
	return a
}

// cgroupsPath returns the group of the sandbox below its parent, in systemd's form if the parent is a slice.
func cgroupsPath(parent, id string) string {
	if base := path.Base(parent); strings.HasSuffix(base, ".slice") {
		return base + ":cri-containerd:" + id
	}
	return filepath.Join(parent, id)
}
