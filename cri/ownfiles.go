package cri

import (
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/cri/spec"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/hostpath"
)

const (
	hostsPath = "/etc/hosts"
	// maxHosts bounds the bytes of a file for a container's /etc/hosts.
	maxHosts = 1 << 20

	// The kubelet's annotation of a container.
	terminationAnnotation = "io.kubernetes.container.terminationMessagePath"
	terminationDefault    = "/dev/termination-log"
)

// ownFiles are mounts of a client's own files beside a container's volumes.
type ownFiles struct {
	mounts      []*runtimeapi.Mount
	hosts       spec.Hosts
	termination *store.Termination
}

// takeOwnFiles removes the client's own files from the mounts. It reads /etc/hosts now; the termination message is
// copied when the container ends. Both are recognised by their places on the host. A volume at the same destination is
// an ordinary mount.
func (s *Service) takeOwnFiles(config *runtimeapi.ContainerConfig) (own ownFiles, err error) {
	words := config.GetAnnotations()[terminationAnnotation]
	if words == "" {
		words = terminationDefault
	}
	config.Mounts = slices.DeleteFunc(config.Mounts, func(m *runtimeapi.Mount) bool {
		at := path.Clean(m.GetContainerPath())
		if err != nil || at != hostsPath && at != path.Clean(words) || !s.ownFile(m.GetHostPath()) {
			return false
		}
		if at == hostsPath {
			own.hosts.ReadOnly = m.GetReadonly()
			own.hosts.Text, err = readHosts(s.engine.HostPaths(), m.GetHostPath())
		} else {
			own.termination = &store.Termination{Container: m.GetContainerPath(), Host: m.GetHostPath()}
		}
		own.mounts = append(own.mounts, m)
		return true
	})
	return own, err
}

// ownFile reports whether a path of the host is a client's own file and not a volume.
func (s *Service) ownFile(hostPath string) bool {
	return hostPath != "" && s.engine.HostPaths().Check(hostPath) == nil && !s.volumes.Holds(hostPath)
}

func readHosts(paths hostpath.Dirs, hostPath string) (string, error) {
	root, name, err := paths.Open(hostPath)
	if err != nil {
		return "", fmt.Errorf("read the hosts file: %w", err)
	}
	defer root.Close()
	data, err := readFile(name, maxHosts, func(name string) (*os.File, error) {
		return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return "", fmt.Errorf("read the hosts file: %w", err)
	}
	return string(data), nil
}
