// Package archive writes images of one layer as the archives that engines load.
package archive

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// The formats.
const (
	Docker = "docker-archive" // the format of docker save and podman save
	OCI    = "oci-archive"    // an OCI layout, packed
)

// ErrFormat is returned for an unknown format.
var ErrFormat = errors.New("unknown format")

// Image is an image of one layer.
type Image struct {
	Names  []string // full names with tags, if any
	Config []byte   // its configuration
	Layer  digest.Digest
	Size   int64 // of the layer, a tar stream
	// Content writes the layer.
	Content func(io.Writer) error
}

// Write writes an image to out. It returns ErrFormat, an error of out or Content, or
// an error for a layer that does not have its digest.
func Write(out io.Writer, format string, img Image) error {
	w := tar.NewWriter(out)
	var err error
	switch format {
	case Docker:
		err = img.docker(w)
	case OCI:
		err = img.oci(w)
	default:
		return fmt.Errorf("%w %.80q (want %s or %s)", ErrFormat, format, Docker, OCI)
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// file is a small file of an archive.
type file struct {
	name string
	data []byte
}

func (img Image) docker(w *tar.Writer) error {
	config, layer := digest.FromBytes(img.Config).Encoded()+".json", img.Layer.Encoded()+".tar"
	manifest, err := json.Marshal([]struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{{config, img.Names, []string{layer}}})
	if err != nil {
		return err
	}
	return img.write(w, layer, file{"manifest.json", manifest}, file{config, img.Config})
}

func (img Image) oci(w *tar.Writer) error {
	config := descriptor(v1.MediaTypeImageConfig, img.Config)
	manifest, err := json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: config,
		Layers: []v1.Descriptor{{MediaType: v1.MediaTypeImageLayer, Digest: img.Layer, Size: img.Size}},
	})
	if err != nil {
		return err
	}
	top := descriptor(v1.MediaTypeImageManifest, manifest)
	if len(img.Names) > 0 {
		top.Annotations = map[string]string{v1.AnnotationRefName: img.Names[0]}
	}
	index, indexErr := json.Marshal(v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{top},
	})
	layout, layoutErr := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err := errors.Join(indexErr, layoutErr); err != nil {
		return err
	}
	return img.write(w, blobPath(img.Layer), file{v1.ImageLayoutFile, layout}, file{v1.ImageIndexFile, index},
		file{blobPath(top.Digest), manifest}, file{blobPath(config.Digest), img.Config})
}

func descriptor(kind string, data []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

func blobPath(d digest.Digest) string {
	return path.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// write writes small files and the layer.
func (img Image) write(w *tar.Writer, layer string, files ...file) error {
	for _, f := range files {
		if err := w.WriteHeader(header(f.name, int64(len(f.data)))); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(header(layer, img.Size)); err != nil {
		return err
	}
	verifier := img.Layer.Verifier()
	if err := img.Content(io.MultiWriter(w, verifier)); err != nil {
		return err
	}
	if !verifier.Verified() {
		return errors.New("the layer changed while it was read")
	}
	return nil
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}
}
