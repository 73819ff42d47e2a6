// Package local reads an image on this host: an OCI layout in a directory or an archive, or an archive of docker save.
// The image is treated as hostile: only regular files are opened, nothing is unpacked, files that are read whole are
// bounded, and package convert's process parses archives.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	dockerarchive "go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/docker/reference"
	ociarchive "go.podman.io/image/v5/oci/archive"
	ocilayout "go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

var (
	// ErrFormat is returned for files that are not an image, or have an unknown format.
	ErrFormat = errors.New("bad format")
	// ErrWhich is returned if there are several images and none is selected, or if the selected one does not exist.
	ErrWhich = errors.New("which image")
	// ErrLarge is returned for layers that are larger than the free space.
	ErrLarge = errors.New("its layers need more than the free space")
)

// Source is one image. It is a types.ImageSource with blobs that may be read concurrently. Manifests are verified,
// blobs are not.
type Source struct {
	ref   types.ImageReference
	files files
	// names are the image's own names.
	names []reference.Named
	top   document // its manifest, or the list with its manifest
	// places maps blobs to the files of docker save. A layout names them by their digests.
	places map[digest.Digest]string
}

// document is a manifest.
type document struct {
	data []byte
	mime string
}

// Open opens the image that text names: "oci:DIR[:TAG]", "oci-archive:FILE[:TAG]", "docker-archive:FILE[:NAME]", or the
// path of a file or directory; @0 instead of a tag or name is the first image. For a path it detects the format. It
// copies compressed archives into dir, at most limit bytes of them. To find the digests of layers it reads at most
// limit bytes. Archives are parsed in the cgroup g. The caller closes the Source. Errors: ErrFormat, ErrWhich,
// ErrLarge, os.ErrNotExist, *convert.Error, convert.ErrMemory.
func Open(ctx context.Context, g *hostcgroup.Group, text, dir string, limit int64) (*Source, error) {
	transport, place, which := split(text)
	if place == "" {
		return nil, fmt.Errorf("%w: %.255q (want a file, a directory, or oci:DIR, oci-archive:FILE, docker-archive:FILE)", ErrFormat, text)
	}
	f, err := openFiles(ctx, g, place, dir, limit)
	if err != nil {
		return nil, err
	}
	s := &Source{files: f}
	if transport == "" {
		transport = detect(f)
	}
	switch transport {
	case "docker-archive":
		err = s.readDocker(ctx, which, limit)
	case "oci", "oci-archive":
		err = s.readOCI(which)
	default:
		err = fmt.Errorf("%w: %s must have an index.json (OCI) or a manifest.json (docker save)", ErrFormat, place)
	}
	if err == nil {
		s.ref, err = s.reference(place, which)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// split splits the text into its parts. An absolute path has no transport.
func split(text string) (transport, place, which string) {
	if path.IsAbs(text) {
		return "", text, ""
	}
	transport, rest, _ := strings.Cut(text, ":")
	if transport != "oci" && transport != "oci-archive" && transport != "docker-archive" {
		return "", "", ""
	}
	place, which, _ = strings.Cut(rest, ":")
	return transport, place, which
}

func openFiles(ctx context.Context, g *hostcgroup.Group, place, dir string, limit int64) (files, error) {
	// Opening a pipe without a writer would block.
	f, err := os.OpenFile(place, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if info.IsDir() {
		root, err := os.OpenRoot(place)
		return directory{root}, errors.Join(err, f.Close())
	}
	if _, err := regular(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return newArchive(ctx, g, f, dir, limit)
}

// detect detects the format. docker save writes both files; its own one has the whole names.
func detect(f files) string {
	for _, format := range []struct{ file, transport string }{{"manifest.json", "docker-archive"}, {"index.json", "oci"}} {
		if in, _, err := f.open(format.file); err == nil {
			in.Close()
			return format.transport
		}
	}
	return ""
}

// reference returns the image's name for policy.json and errors.
func (s *Source) reference(place, which string) (types.ImageReference, error) {
	if which != "" {
		place += ":" + which
	}
	parse := ociarchive.ParseReference
	if s.places != nil {
		parse = dockerarchive.ParseReference
	} else if _, ok := s.files.(directory); ok {
		parse = ocilayout.ParseReference
	}
	ref, err := parse(place)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return ref, nil
}

// Names returns the names that the image itself has.
func (s *Source) Names() []reference.Named { return s.names }

// Reference is part of types.ImageSource.
func (s *Source) Reference() types.ImageReference { return s.ref }

// Close is part of types.ImageSource.
func (s *Source) Close() error { return s.files.Close() }

// GetManifest is part of types.ImageSource.
func (s *Source) GetManifest(_ context.Context, instance *digest.Digest) ([]byte, string, error) {
	if instance == nil {
		return s.top.data, s.top.mime, nil
	}
	d, err := s.document(*instance, "")
	return d.data, d.mime, err
}

// GetBlob is part of types.ImageSource.
func (s *Source) GetBlob(_ context.Context, info types.BlobInfo, _ types.BlobInfoCache) (io.ReadCloser, int64, error) {
	if err := info.Digest.Validate(); err != nil {
		return nil, 0, fmt.Errorf("%w: digest %.80q: %w", ErrFormat, info.Digest, err)
	}
	return s.files.open(s.path(info.Digest))
}

// HasThreadSafeGetBlob is part of types.ImageSource.
func (*Source) HasThreadSafeGetBlob() bool { return true }

// GetSignatures is part of types.ImageSource: these formats have none.
func (*Source) GetSignatures(context.Context, *digest.Digest) ([][]byte, error) { return nil, nil }

// LayerInfosForCopy is part of types.ImageSource.
func (*Source) LayerInfosForCopy(context.Context, *digest.Digest) ([]types.BlobInfo, error) {
	return nil, nil
}
