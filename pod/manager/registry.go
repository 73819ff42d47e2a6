package manager

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// minID is the shortest prefix of an id that commands with changes accept, in characters. A shorter text may be a
// mistyped name.
const minID = 6

// Add adds a new pod with its objects, if its name is free. The caller then calls Run or Discard. The error is of
// errdefs.ErrInvalidArgument for a pod that cannot be run, and errdefs.ErrAlreadyExists. Concurrent calls must not have the same UID.
func (m *Manager) Add(rec Record, given Objects) (*Pod, error) {
	if rec.Since.IsZero() {
		rec.Since = time.Now()
	}
	if p, err := m.Get(rec.Pod.UID); err == nil {
		return nil, fmt.Errorf("pod %s (%s) %w", p.Key(), p.UID(), errdefs.ErrAlreadyExists)
	}
	p, err := m.newPod(rec, true)
	if err == nil && !given.Empty() {
		err = p.PutObjects(given)
	}
	if err == nil {
		err = m.add(p)
	}
	if err != nil {
		p.door.Release()
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

// add saves a new pod and adds it to the manager, if its name is free.
func (m *Manager) add(p *Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.pods {
		if !m.o.ByUID && other.Key() == p.Key() {
			return fmt.Errorf("pod %s %w", p.Key(), errdefs.ErrAlreadyExists)
		}
	}
	if err := p.save(); err != nil {
		return err
	}
	fault.Point("pod.saved")
	m.pods[p.UID()] = p
	return nil
}

// Discard removes all files of a pod that never ran or has been deleted.
func (m *Manager) Discard(p *Pod) error {
	fault.Point("pod.deleted")
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.Key(), err)
	}
	p.door.Release()
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	m.news.Notify()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, p.UID())
	if rec := p.record(); rec.removesItself() {
		m.removed = append(m.removed, p)
		m.removed = m.removed[max(0, len(m.removed)-mostRemoved):]
	}
	return nil
}

// mostRemoved bounds the remembered pods that removed themselves.
const mostRemoved = 64

// Removed returns a pod that recently ended and removed itself. Clients may ask for its outcome after its end.
func (m *Manager) Removed(uid types.UID) (*Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.removed {
		if p.UID() == uid {
			return p, true
		}
	}
	return nil, false
}

// All returns the pods, oldest first.
func (m *Manager) All() []*Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*Pod
	for _, p := range m.pods {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Pod) int {
		x, y := a.original, b.original
		if c := x.CreationTimestamp.Compare(y.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Key(), b.Key())
	})
	return list
}

// Get returns the pod with a UID. The error is errdefs.ErrNotFound.
func (m *Manager) Get(uid types.UID) (*Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("pod %q: %w", uid, errdefs.ErrNotFound)
}

// Find returns the pod for a name, namespace/name or id (its UID or its sandbox's id), or for an unambiguous prefix of
// its name or id. A full name wins over prefixes. The error is errdefs.ErrNotFound or errclass.ErrAmbiguous. Use it for commands that
// only read.
func (m *Manager) Find(ref string) (*Pod, error) {
	return m.find(ref, func(p *Pod, ref string) bool { return strings.HasPrefix(p.Name(), ref) || p.hasID(ref) })
}

// FindExact is Find for commands that change a pod. It needs the full name, so that a pod with a longer name is not
// meant, or a prefix of the id.
func (m *Manager) FindExact(ref string) (*Pod, error) {
	return m.find(ref, func(p *Pod, ref string) bool { return len(ref) >= minID && p.hasID(ref) })
}

func (m *Manager) find(ref string, loosely func(*Pod, string) bool) (*Pod, error) {
	ref = strings.TrimPrefix(ref, "pod/") // as printed by ps -o name
	all := m.All()
	found := slices.DeleteFunc(slices.Clone(all), func(p *Pod) bool {
		return ref != p.Name() && ref != p.Key() && ref != string(p.UID())
	})
	if len(found) == 0 {
		namespace, prefix, within := strings.Cut(ref, "/")
		if !within {
			prefix = ref
		}
		found = slices.DeleteFunc(all, func(p *Pod) bool {
			return prefix == "" || within && p.rec.Pod.Namespace != namespace || !loosely(p, prefix)
		})
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("pod %q: %w", ref, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, p := range found {
		names = append(names, p.Key())
	}
	return nil, fmt.Errorf("pod %q: %w: it may be %s", ref, errclass.ErrAmbiguous, strings.Join(names, " or "))
}

// hasID reports whether prefix is a prefix of an id of the pod.
func (p *Pod) hasID(prefix string) bool {
	return strings.HasPrefix(string(p.UID()), prefix) || strings.HasPrefix(p.Sandbox(), prefix)
}
