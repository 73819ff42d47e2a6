package app

import (
	"fmt"
	"io"
	"os"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// maxManifest bounds a file of YAML documents, as the API server's requests.
const maxManifest = 3 << 20

// Manifest reads a file of YAML documents, or stdin for "-".
func (a *App) Manifest(name string) (api.Manifest, error) {
	var r = a.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return api.Manifest{}, fmt.Errorf("read the manifest: %w (run takes files with the YAML of pods)", err)
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
