// Package ociimage builds container images from lists of tar entries: the demo image, and images for tests.
package ociimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// New builds an image for linux/amd64 in OCI's formats, with layers packed by gzip. The same arguments give the same
// image. Entries are written unchanged, even if no sane tool would write them.
func New(config v1.Config, layers ...[]Entry) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: "amd64",
		OS:           "linux",
		Config:       config,
		RootFS:       v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("build image: %w", err)
	}
	for i, entries := range layers {
		layer, err := Layer(entries)
		if err != nil {
			return nil, fmt.Errorf("build image: layer %d: %w", i, err)
		}
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "bulkhead"}})
		if err != nil {
			return nil, fmt.Errorf("build image: layer %d: %w", i, err)
		}
	}
	return img, nil
}

// Layer builds one layer.
func Layer(entries []Entry) (v1.Layer, error) {
	packed, err := Tar(entries)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// Tar builds a tar archive.
func Tar(entries []Entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		head := e.Header
		head.Size = int64(len(e.Body))
		if head.ModTime.IsZero() {
			head.ModTime = time.Unix(0, 0)
		}
		if err := w.WriteHeader(&head); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		if _, err := w.Write(e.Body); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
