package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// Manager manages the volumes of one pod. The protocol: any number of Refresh, then Remove. It is safe for concurrent
// use.
type Manager struct {
	dir     string
	objects Objects
	rules   place.Rules

	mu       sync.Mutex
	prepared bool // the hostPaths
}

// New returns a manager for the volumes below dir, a private directory of the pod. It writes nothing yet. rules exclude
// places of the host where no hostPath is created.
func New(dir string, objects Objects, rules place.Rules) *Manager {
	if objects == nil {
		objects = None{}
	}
	return &Manager{dir: dir, objects: objects, rules: rules}
}

// Needed reports whether the pod has volumes that Refresh writes or creates.
func Needed(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if source := &pod.Spec.Volumes[i].VolumeSource; Plugin(source) != "" || source.HostPath != nil {
			return true
		}
	}
	return false
}

// Refresh writes the current content of the pod's volumes. allocatable are the resources of a container without limits.
// A volume that cannot be written stays unchanged and is named in the error; the others are written. The first
// successful call also checks or creates the hostPaths.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod, allocatable corev1.ResourceList) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var failed error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		err := m.refresh(ctx, pod, volume, allocatable)
		if err != nil {
			err = fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume.Name, err)
			if failed != nil {
				err = fmt.Errorf("%w; %w", failed, err)
			}
			failed = err
		}
	}
	m.prepared = m.prepared || failed == nil
	return failed
}

func (m *Manager) refresh(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume, allocatable corev1.ResourceList) error {
	if volume.HostPath != nil && !m.prepared {
		return PrepareHostPath(ctx, m.rules, volume.HostPath)
	}
	plugin := Plugin(&volume.VolumeSource)
	if plugin == "" {
		return nil
	}
	p := &payload{pod: pod, objects: m.objects, allocatable: allocatable}
	if err := p.collect(ctx, &volume.VolumeSource); err != nil {
		return err
	}
	return m.write(plugin, volume.Name, p.files)
}

func (m *Manager) write(plugin, name string, files []atomicdir.File) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("invalid volume name %q", name)
	}
	// The parent is closed to others, so the files may have the modes that the pod's users need.
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return err
	}
	dir := filepath.Join(m.dir, plugin, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = atomicdir.Write(root, files)
	return err
}

// Remove removes all volumes and the directory.
func (m *Manager) Remove() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := os.RemoveAll(m.dir); err != nil {
		return fmt.Errorf("remove the pod's volumes: %w", err)
	}
	return nil
}
