// Package manifest reads documents that users write, and writes a pod as such documents.
package manifest

import (
	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// Read reads the documents of manifests. The error matches errdefs.ErrInvalidArgument.
func Read(manifests []api.Manifest, options podapi.Options) (*podapi.Documents, error) {
	var files []podapi.File
	for _, m := range manifests {
		files = append(files, podapi.File{Name: m.Name, Data: []byte(m.YAML)})
	}
	found, err := podapi.ReadAll(files, options)
	if err != nil {
		return nil, errclass.With(errdefs.ErrInvalidArgument, err)
	}
	return found, nil
}

// Objects returns the ConfigMaps and Secrets of documents.
func Objects(found *podapi.Documents) manager.Objects {
	return manager.Objects{ConfigMaps: found.ConfigMaps, Secrets: found.Secrets}
}
