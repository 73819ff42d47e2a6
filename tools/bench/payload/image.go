// Package payload builds the image that is pulled, converted and read, and serves it from a registry on loopback.
package payload

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

// The names of the benchmark's files in the image.
const (
	Reader  = "bin/diskread"
	BigFile = "data/big"
)

// Shape is the size of the unpacked image in bytes, without the base.
type Shape struct {
	Small int // in files of 200 bytes to 1 MiB
	Big   int // in one file
}

// MB200 is an image of 200 MB.
var MB200 = Shape{Small: 132 << 20, Big: 64 << 20}

// Image builds an image on top of busybox, with a layer each for the program that reads disks, for many small files
// and for a big one. The same arguments give the same image. Small files compress to about half, like programs and
// texts.
func Image(ctx context.Context, reader string, shape Shape) (v1.Image, error) {
	img, err := busybox.Image(ctx, busybox.Binary)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(reader)
	if err != nil {
		return nil, fmt.Errorf("build the benchmark's image: %w", err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	words := dictionary(rng)
	var small []ociimage.Entry
	for left, i := shape.Small, 0; left > 0; i++ {
		size := min(left, 200<<rng.IntN(13)+rng.IntN(4096))
		if i%64 == 0 {
			small = append(small, ociimage.Dir(fmt.Sprintf("data/%03d", i/64), 0o755))
		}
		small = append(small, ociimage.File(fmt.Sprintf("data/%03d/f%d", i/64, i), 0o644, string(content(rng, words, size))))
		left -= size
	}
	data := ociimage.Dir("data", 0o755)
	for _, entries := range [][]ociimage.Entry{
		{{Header: tar.Header{Typeflag: tar.TypeReg, Name: Reader, Mode: 0o755}, Body: program}},
		append([]ociimage.Entry{data}, small...),
		{data, ociimage.File(BigFile, 0o644, string(content(rng, words, shape.Big)))},
	} {
		layer, err := pack(entries)
		if err != nil {
			return nil, fmt.Errorf("build the benchmark's image: %w", err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return nil, fmt.Errorf("build the benchmark's image: %w", err)
		}
	}
	return img, nil
}

// pack builds a layer that is compressed only once.
func pack(entries []ociimage.Entry) (v1.Layer, error) {
	packed, err := ociimage.Tar(entries)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func dictionary(rng *rand.Rand) [][]byte {
	words := make([][]byte, 4096)
	for i := range words {
		word := make([]byte, 2+rng.IntN(9), 12)
		for j := range word {
			word[j] = byte('a' + rng.IntN(26))
		}
		words[i] = append(word, ' ')
	}
	return words
}

// content is words, some much more frequent than others, with noise in every eighth kilobyte.
func content(rng *rand.Rand, words [][]byte, size int) []byte {
	common := rand.NewZipf(rng, 1.3, 8, uint64(len(words)-1))
	out := make([]byte, 0, size+1024)
	for len(out) < size {
		if rng.IntN(8) == 0 {
			for range 128 {
				n := rng.Uint64()
				out = append(out, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(n>>32), byte(n>>40), byte(n>>48), byte(n>>56))
			}
			continue
		}
		for end := len(out) + 1024; len(out) < end; {
			out = append(out, words[common.Uint64()]...)
		}
	}
	return out[:size]
}
