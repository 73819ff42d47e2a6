package worker

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// zstdWindow bounds the memory of a stream's decompressor.
const zstdWindow = 128 << 20

// errPlain is returned by decompress for a stream that is not compressed in a known way.
var errPlain = errors.New("not compressed")

// decompress returns the decompressed stream of in. It detects the format by the first bytes, because media types are
// often wrong. With errPlain it has consumed nothing.
func decompress(in *bufio.Reader) (io.ReadCloser, error) {
	magic, err := in.Peek(4)
	if err != nil && !atEOF(err) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		return gzip.NewReader(in)
	case bytes.HasPrefix(magic, []byte("BZh")):
		return io.NopCloser(bzip2.NewReader(in)), nil
	case string(magic) == "\xfd7zX":
		r, err := xz.NewReader(in, xz.DefaultDictMax)
		return io.NopCloser(r), err
	case len(magic) == 4 && (string(magic) == "\x28\xb5\x2f\xfd" || magic[0]&0xf0 == 0x50 && string(magic[1:]) == "\x2a\x4d\x18"):
		d, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return nil, errPlain
}

// atEOF distinguishes the end of a stream from a failure of another stream.
func atEOF(err error) bool { return err == io.EOF } //nolint:errorlint // see above
