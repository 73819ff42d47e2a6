// Package unpack decompresses kernels and modules. It recognises the format by the first bytes.
package unpack

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
	"github.com/pierrec/lz4/v4"
)

// dictMax bounds the dictionary of xz data; a kernel's is 32 MiB.
const dictMax = 1 << 28

type format struct {
	name  string
	magic string
	open  func(io.Reader) (io.Reader, error)
}

// The xz package supports the x86 filter, which kernels use.
func formats() []format {
	return []format{
		{"gzip", "\x1f\x8b", func(r io.Reader) (io.Reader, error) {
			return gzip.NewReader(r)
		}},
		{"xz", "\xfd7zXZ\x00", func(r io.Reader) (io.Reader, error) {
			return xz.NewReader(r, dictMax)
		}},
		{"zstd", "\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, error) {
			// Kernels are compressed with a window of up to 128 MiB.
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<28))
		}},
		{"lz4", "\x02\x21\x4c\x18", func(r io.Reader) (io.Reader, error) { return lz4.NewReader(r), nil }},
		{"bzip2", "BZh", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
		{"none", "\x7fELF", func(r io.Reader) (io.Reader, error) { return r, nil }},
	}
}

// ELF returns the ELF file in data, unpacked if necessary, of at most limit bytes.
func ELF(data []byte, limit int64) ([]byte, error) {
	for _, f := range formats() {
		if !bytes.HasPrefix(data, []byte(f.magic)) {
			continue
		}
		out, err := f.unpack(data, limit)
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", f.name, err)
		}
		return out, nil
	}
	return nil, fmt.Errorf("unknown compression: it begins with % x", data[:min(len(data), 8)])
}

func (f format) unpack(data []byte, limit int64) ([]byte, error) {
	r, err := f.open(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if c, ok := r.(interface{ Close() }); ok {
		defer c.Close() // zstd's reader
	}
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, limit+1))
	if n > limit {
		return nil, fmt.Errorf("unpacked data is too large: more than %d bytes", limit)
	}
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(out.Bytes(), []byte("\x7fELF")) {
		return nil, errors.New("the unpacked data is not an ELF file")
	}
	return out.Bytes(), nil
}
