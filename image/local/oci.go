package local

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
)

// containerdName is the annotation with an image's whole name, set by containerd and docker. OCI's own annotation may
// have only a tag.
const containerdName = "io.containerd.image.name"

// readOCI reads the index of an OCI layout, and the manifest that which selects.
func (s *Source) readOCI(which string) error {
	data, err := small(s.files, v1.ImageIndexFile)
	if err != nil {
		return err
	}
	var index v1.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFormat, v1.ImageIndexFile, err)
	}
	d, err := choose(index.Manifests, which)
	if err != nil {
		return err
	}
	for _, key := range []string{containerdName, v1.AnnotationRefName} {
		name := d.Annotations[key]
		if named, err := reference.ParseNormalizedNamed(name); err == nil && strings.Contains(name, "/") {
			s.names = []reference.Named{reference.TagNameOnly(named)}
			break
		}
	}
	s.top, err = s.document(d.Digest, d.MediaType)
	return err
}

func choose(list []v1.Descriptor, which string) (v1.Descriptor, error) {
	if number, ok := strings.CutPrefix(which, "@"); ok {
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= len(list) {
			return v1.Descriptor{}, fmt.Errorf("%w: no image @%.20s (the layout has %d)", ErrWhich, number, len(list))
		}
		return list[i], nil
	}
	var found []v1.Descriptor
	for _, d := range list {
		if which == "" || d.Annotations[v1.AnnotationRefName] == which {
			found = append(found, d)
		}
	}
	if len(found) > 1 {
		found = forGuests(found)
	}
	if len(found) != 1 {
		return v1.Descriptor{}, fmt.Errorf("%w: %d of %d images match %q: choose one with oci:DIR:TAG", ErrWhich, len(found), len(list), which)
	}
	return found[0], nil
}

// The platform of all guests.
const (
	platformOS   = "linux"
	platformArch = "amd64"
)

// attestation is the annotation of a manifest that describes how another one was built.
const attestation = "vnd.docker.reference.type"

// forGuests removes images of other platforms, and manifests that are not images. A flat index has both.
func forGuests(list []v1.Descriptor) (out []v1.Descriptor) {
	for _, d := range list {
		p := d.Platform
		if d.Annotations[attestation] == "" && d.ArtifactType == "" && (p == nil || p.OS == platformOS && p.Architecture == platformArch) {
			out = append(out, d)
		}
	}
	return out
}

// document reads a manifest or an index and verifies it.
func (s *Source) document(d digest.Digest, mime string) (document, error) {
	if err := d.Validate(); err != nil {
		return document{}, fmt.Errorf("%w: digest %.80q: %w", ErrFormat, d, err)
	}
	data, err := small(s.files, s.path(d))
	if err != nil {
		return document{}, err
	}
	if d.Algorithm().FromBytes(data) != d {
		return document{}, fmt.Errorf("%w: the manifest is not %s", ErrFormat, d)
	}
	if mime == "" {
		mime = manifest.GuessMIMEType(data)
	}
	return document{data, mime}, nil
}

// path returns the file of a blob with a valid digest.
func (s *Source) path(d digest.Digest) string {
	if s.places != nil {
		return s.places[d]
	}
	return path.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}
