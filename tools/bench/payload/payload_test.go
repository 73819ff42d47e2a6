package payload

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestImage builds a small image twice, serves it and pulls it.
func TestImage(t *testing.T) {
	shape := Shape{Small: 3 << 20, Big: 1 << 20}
	var digests []v1.Hash
	var img v1.Image
	for range 2 {
		var err error
		if img, err = Image(t.Context(), os.Args[0], shape); err != nil {
			t.Fatal(err)
		}
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d)
	}
	if digests[0] != digests[1] {
		t.Error("the same arguments give different images")
	}
	r, err := Serve(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	ref, err := name.ParseReference(r.Reference, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	files, small, big := 0, int64(0), int64(0)
	content := mutate.Extract(pulled)
	defer content.Close()
	for tr := tar.NewReader(content); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case h.Name == BigFile:
			big = h.Size
		case h.Typeflag == tar.TypeReg && len(h.Name) > 5 && h.Name[:5] == "data/":
			files++
			small += h.Size
		}
	}
	if small != int64(shape.Small) || big != int64(shape.Big) || files < 5 {
		t.Errorf("%d files of %d bytes and one of %d", files, small, big)
	}
}

func TestContentCompresses(t *testing.T) {
	img, err := Image(t.Context(), os.DevNull, Shape{Small: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	size, err := layers[2].Size()
	if err != nil {
		t.Fatal(err)
	}
	if part := float64(size) / (4 << 20); part < 0.35 || part > 0.55 {
		t.Errorf("it compresses to %.0f %%", part*100)
	}
}
