package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

const diskFile = "disk.erofs"

// makeDisk merges layers, lowest first, into one disk of at most limit bytes in dir, while they are still being
// fetched. It returns the size of the file system on the disk. A disk of an earlier try is overwritten. The converter
// runs in the cgroup g.
func makeDisk(ctx context.Context, g *hostcgroup.Group, dir string, limit int64, layers []*blob, diffIDs []digest.Digest,
) (size int64, err error) {
	disk, err := os.OpenFile(filepath.Join(dir, diskFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil { // free the space for the next try, or for others
			err = errors.Join(err, disk.Truncate(0))
		}
		err = errors.Join(err, disk.Close())
	}()
	parts := make([]convert.Layer, len(layers))
	for i, b := range layers {
		parts[i] = convert.Layer{DiffID: diffIDs[i], Content: b.reader()}
	}
	if size, err = convert.Disk(ctx, g, disk, limit, parts); err != nil {
		return 0, layerError(layers, err, limit)
	}
	if err := disk.Sync(); err != nil {
		return 0, fmt.Errorf("sync the disk: %w", err)
	}
	// All slots of a VM have one size, and so do the disks in them.
	return size, disk.Truncate(slot.Size)
}

// nameless creates a file in dir without a name. It is deleted when it is closed or the process ends.
func nameless(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err == nil {
		return f, nil
	}
	if f, err = os.CreateTemp(dir, "nameless-*"); err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// layerError adds the class of the converter's error, and the layer that it concerns.
func layerError(layers []*blob, err error, limit int64) error {
	var fault *convert.Error
	if !errors.As(err, &fault) {
		return err
	}
	err = faultError(fault, limit)
	if fault.Layer < 0 || fault.Layer >= len(layers) {
		return err
	}
	return fmt.Errorf("layer %s: %w", layers[fault.Layer].info.Digest, err)
}

func faultError(fault *convert.Error, limit int64) error {
	switch {
	case fault.Kind == convert.Large && limit < slot.Size:
		return fmt.Errorf("%w: its disk needs more than the %d MiB that are free beside its layers and the %d MiB kept for pods (%s)",
			ErrNoSpace, limit>>20, reserve>>20, makeRoom)
	case fault.Kind == convert.Space:
		return fmt.Errorf("%w: %w", ErrNoSpace, fault)
	case fault.Kind == convert.Digest:
		return &classError{ErrDigest, fault, fault.Text}
	case fault.Kind == convert.Large, fault.Kind == convert.Invalid:
		return fmt.Errorf("%w: %w", ErrInvalid, fault)
	}
	return fault
}
