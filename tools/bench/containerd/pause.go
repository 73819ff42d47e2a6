package containerd

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

// pause is the image of the process that holds a pod's namespaces.
const pause = "localhost/pause:bench"

// LoadPause builds and loads the pause image, which every pod needs.
func (c *Containerd) LoadPause(ctx context.Context) error {
	img, err := busybox.Image(ctx, busybox.Binary)
	if err != nil {
		return err
	}
	f, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config := f.Config
	config.Entrypoint, config.Cmd = nil, []string{"/bin/sleep", "1000000"}
	if img, err = mutate.Config(img, config); err != nil {
		return fmt.Errorf("build the pause image: %w", err)
	}
	layout, archive := filepath.Join(c.dir, "pause"), filepath.Join(c.dir, "pause.tar")
	if err := ociimage.WriteLayout(layout, img); err != nil {
		return err
	}
	if err := ociimage.WriteArchive(archive, layout); err != nil {
		return err
	}
	return c.Load(ctx, archive, pause)
}
