package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/image/erofs"
	"github.com/bulkhead-project/bulkhead/image/layer"
)

const (
	diskFile = "disk.erofs"
	// maxRoom is a disk of the largest size with its layers, compressed by nothing.
	maxRoom = 2 * slot.Size
	// reserve is left free on the store's file system by a conversion.
	reserve = 64 << 20
	// zstdWindow bounds what a layer can make its decompressor take.
	zstdWindow = 128 << 20
)

// convert merges layers, lowest first, into one disk of at most limit bytes in
// dir, while they are still being fetched, and returns the size of the file
// system in it.
func convert(ctx context.Context, dir string, limit int64, layers []*blob, diffIDs []digest.Digest) (size int64, err error) {
	disk, err := os.OpenFile(filepath.Join(dir, diskFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	spool, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err != nil {
		if spool, err = os.CreateTemp(dir, "spool-*"); err != nil {
			return 0, err
		}
		defer os.Remove(spool.Name())
	}
	defer spool.Close()
	out := erofs.NewWriter(disk, spool, limit)
	tree := layer.NewTree(out, layer.DefaultLimits)
	for i, b := range layers {
		if err := applyLayer(ctx, tree, b, diffIDs[i]); err != nil {
			return 0, layerError(b.info.Digest, err, limit)
		}
		out.Flush()
	}
	if size, err = out.Finish(tree.Root); err != nil {
		return 0, layerError("", err, limit)
	}
	if err := disk.Sync(); err != nil {
		return 0, fmt.Errorf("sync the disk: %w", err)
	}
	// A slot of a virtual machine has one size, and so has what fills it.
	return size, disk.Truncate(slot.Size)
}

// room returns what an image may take, layers and disk together, by what is free.
func room(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("stat the file system of %s: %w", dir, err)
	}
	free := int64(min(fs.Bavail, 1<<40)) * fs.Bsize
	return min(maxRoom, max(0, free-reserve)), nil
}

func layerError(d digest.Digest, err error, limit int64) error {
	switch {
	case errors.Is(err, erofs.ErrTooLarge) && limit < slot.Size:
		err = fmt.Errorf("%w: it takes more than the %d MiB that are left beside its layers and the %d kept for pods (remove images with bulkhead image rm)", ErrNoSpace, limit>>20, reserve>>20)
	case errors.Is(err, layer.ErrHostile), errors.Is(err, erofs.ErrTooLarge):
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if d == "" || strings.Contains(err.Error(), d.String()) {
		return err
	}
	return fmt.Errorf("layer %s: %w", d, err)
}

// applyLayer decompresses in one goroutine and merges in the caller's, so that
// two processors have work; it returns when both are done.
func applyLayer(ctx context.Context, tree *layer.Tree, b *blob, diffID digest.Digest) error {
	ahead := newReadAhead(b.reader(), diffID.Verifier())
	err := tree.Apply(ctx, ahead)
	if err != nil {
		b.fail(errStopped)
	}
	verified, readErr := ahead.stop()
	switch {
	case readErr != nil && !errors.Is(readErr, errStopped):
		return readErr // what the merge says then only follows from it
	case err != nil:
		return err
	case !verified:
		return fmt.Errorf("%w: uncompressed content is not %s", ErrDigest, diffID)
	}
	return nil
}

// decompress returns the stream inside of in, by its first bytes: media types
// are often wrong.
func decompress(in io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(in, 256<<10)
	magic, err := buffered.Peek(4)
	if err != nil && !atEOF(err) {
		return nil, err
	}
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		return gzip.NewReader(buffered)
	case len(magic) == 4 && string(magic) == "\x28\xb5\x2f\xfd", len(magic) == 4 && magic[0]&0xf0 == 0x50 && string(magic[1:]) == "\x2a\x4d\x18":
		d, err := zstd.NewReader(buffered, zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(buffered), nil
}
