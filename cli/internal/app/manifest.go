package app

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// IsFile reports whether an argument names a file of documents: it ends in .yaml, .yml or .json, or is - for stdin.
// Any other argument names an image or a pod.
func IsFile(arg string) bool {
	return arg == "-" || slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(arg)))
}

// maxManifest bounds a file of YAML documents, in bytes. The API server has the same bound for requests.
const maxManifest = 3 << 20

// Manifests reads several files.
func (a *App) Manifests(names []string) ([]api.Manifest, error) {
	var list []api.Manifest
	for _, name := range names {
		m, err := a.Manifest(name)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// Manifest reads a file of YAML documents, or stdin for "-".
func (a *App) Manifest(name string) (api.Manifest, error) {
	var r = a.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return api.Manifest{}, fmt.Errorf("read the manifest: %w", err)
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return api.Manifest{}, fmt.Errorf("read the manifest %s: %w", name, err)
	}
	if len(b) > maxManifest {
		return api.Manifest{}, fmt.Errorf("the manifest %s is larger than %d bytes", name, maxManifest)
	}
	return api.Manifest{Name: name, YAML: string(b)}, nil
}
