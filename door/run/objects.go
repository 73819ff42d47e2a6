package run

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// objectsFile holds the ConfigMaps and Secrets that a pod was given, beside its
// record and apart from it: mode 0600, and shown by nothing.
const objectsFile = "objects.json"

// objects are the ConfigMaps and Secrets of a pod's namespace.
type objects struct {
	ConfigMaps []*corev1.ConfigMap `json:"configMaps,omitempty"`
	Secrets    []*corev1.Secret    `json:"secrets,omitempty"`
}

func (o objects) empty() bool { return len(o.ConfigMaps)+len(o.Secrets) == 0 }

// of are those of a namespace.
func (o objects) of(namespace string) (out objects) {
	for _, object := range o.ConfigMaps {
		if object.Namespace == namespace {
			out.ConfigMaps = append(out.ConfigMaps, object)
		}
	}
	for _, object := range o.Secrets {
		if object.Namespace == namespace {
			out.Secrets = append(out.Secrets, object)
		}
	}
	return out
}

// read reads the objects of manifests.
func read(manifests []api.Manifest) (pods []*corev1.Pod, o objects, err error) {
	var files []podapi.File
	for _, m := range manifests {
		files = append(files, podapi.File{Name: m.Name, Data: []byte(m.YAML)})
	}
	found, err := podapi.ReadAll(files, podapi.Options{})
	if err != nil {
		return nil, o, class(api.ErrInvalid, err)
	}
	return found.Pods, objects{ConfigMaps: found.ConfigMaps, Secrets: found.Secrets}, nil
}

// openObjects takes what a new pod is given, or reads what an old one was.
func (e *entry) openObjects() error {
	given := e.rec.objects
	path := filepath.Join(e.dir, objectsFile)
	if given.empty() {
		err := atomicfile.ReadJSON(path, &given)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if errors.Is(err, atomicfile.ErrCorrupt) {
			// The pod runs all the same; what misses an object will say so.
			e.r.s.log.Error("a pod's objects cannot be read", "pod", e.key(), "error", err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the objects of pod %s: %w", e.key(), err)
		}
		return e.objects.Put(given.ConfigMaps, given.Secrets)
	}
	e.rec.objects = objects{}
	return e.putObjects(given)
}

// putObjects gives the pod more objects, or other versions of them. Whatever
// uses them in the pod is told.
func (e *entry) putObjects(more objects) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.objects.Put(more.ConfigMaps, more.Secrets); err != nil {
		return class(api.ErrInvalid, err)
	}
	all := objects{}
	all.ConfigMaps, all.Secrets = e.objects.All()
	if err := atomicfile.WriteJSON(filepath.Join(e.dir, objectsFile), all, 0o600, atomicfile.Durable); err != nil {
		return fmt.Errorf("store the objects of pod %s: %w", e.key(), err)
	}
	return nil
}
