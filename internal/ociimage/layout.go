package ociimage

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// WriteLayout writes img as the only image of an OCI layout in dir, which it creates.
func WriteLayout(dir string, img v1.Image) error {
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout %s: %w", dir, err)
	}
	if err := p.AppendImage(img); err != nil {
		return fmt.Errorf("write layout %s: %w", dir, err)
	}
	return nil
}

// WriteArchive packs the layout in dir into a tar file (an oci-archive). The
// same layout gives the same bytes.
func WriteArchive(file, dir string) (err error) {
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	defer func() {
		if err != nil {
			out.Close()
			os.Remove(out.Name())
			err = fmt.Errorf("write archive %s: %w", file, err)
		}
	}()
	w := tar.NewWriter(out)
	// Sorted by name, so the archive does not depend on the disk.
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		head := tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}
		if entry.IsDir() {
			return w.WriteHeader(&head)
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		head.Typeflag, head.Name, head.Mode, head.Size = tar.TypeReg, name, 0o644, int64(len(body))
		if err := w.WriteHeader(&head); err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := out.Chmod(0o644); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
}
