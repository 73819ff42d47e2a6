package run

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// read reads the pods and objects of manifests.
func read(manifests []api.Manifest) (pods []*corev1.Pod, o manager.Objects, err error) {
	var files []podapi.File
	for _, m := range manifests {
		files = append(files, podapi.File{Name: m.Name, Data: []byte(m.YAML)})
	}
	found, err := podapi.ReadAll(files, podapi.Options{})
	if err != nil {
		return nil, o, errclass.With(api.ErrInvalid, err)
	}
	return found.Pods, manager.Objects{ConfigMaps: found.ConfigMaps, Secrets: found.Secrets}, nil
}
