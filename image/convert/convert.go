// Package convert reads the content of images in another process. That process, bulkhead-convert, has only the
// descriptors that it gets (package image/worker). An attacker with a hole in a decompressor, the tar reader or the
// writer of disks controls that process and its one image, but not the engine. It ends with the call, with the call's
// context, and with the engine.
package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// ErrMemory means that the kernel killed the process because memory ran out.
var ErrMemory = errdefs.ErrResourceExhausted.WithMessage("memory ran out")

// Version is the version of Disk's output. It is raised when the same layers give another disk.
const Version = 1

// Layer is one layer of an image.
type Layer struct {
	// DiffID is the digest of its uncompressed content.
	DiffID digest.Digest
	// Content is the layer as it was fetched. Disk closes it; Close must end a waiting Read.
	Content io.ReadCloser
}

// Disk merges layers, lowest first, into a file system on disk, and returns its size. disk is an empty file that may
// grow to limit bytes. The process runs in the cgroup g. Layers are read as they arrive. Without an error all of them
// have been read to their io.EOF, whatever the process answers. Errors: *Error for a fault of the image or the host, an
// error of a layer's Content unchanged, ErrMemory.
func Disk(ctx context.Context, g *hostcgroup.Group, disk *os.File, limit int64, layers []Layer) (int64, error) {
	req := Request{Task: ToDisk, Limit: limit}
	for _, l := range layers {
		req.DiffIDs = append(req.DiffIDs, l.DiffID)
	}
	c := call{request: req, group: g, files: []*os.File{disk}, layers: layers}
	reply, err := c.do(ctx)
	if err != nil {
		return 0, err
	}
	if reply.Size <= 0 || reply.Size > limit {
		return 0, fmt.Errorf("%w: a disk of %d bytes", errMessage, reply.Size)
	}
	return reply.Size, nil
}

// Index lists the regular files of a tar archive, plain or compressed. It copies a compressed archive to spare, an
// empty file that may grow to limit bytes, and returns copied: the members' offsets then refer to spare. Offsets and
// sizes may be false. Errors: *Error and ErrMemory, as for Disk.
func Index(ctx context.Context, g *hostcgroup.Group, archive, spare *os.File, limit int64) (members []Member, copied bool, err error) {
	c := call{request: Request{Task: ToIndex, Limit: limit}, group: g, files: []*os.File{archive, spare}}
	reply, err := c.do(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, m := range reply.Members {
		if m.Offset < 0 || m.Size < 0 {
			return nil, false, fmt.Errorf("%w: a member of %d bytes at %d", errMessage, m.Size, m.Offset)
		}
	}
	return reply.Members, reply.Copied, nil
}

// Export writes the files of a disk that Disk has made to out, as a layer: an uncompressed tar stream. The same disk
// gives the same bytes. Error: ErrMemory.
func Export(ctx context.Context, g *hostcgroup.Group, disk *os.File, out io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, r)
		copied <- errors.Join(err, r.Close()) // without a reader the process ends
	}()
	c := call{request: Request{Task: ToLayer}, group: g, files: []*os.File{disk, w}}
	_, err = c.do(ctx)
	return errors.Join(w.Close(), <-copied, err)
}

// feed writes the request and the layers.
func (c *call) feed(w io.Writer) error {
	if err := Send(w, c.request); err != nil {
		return err
	}
	buf := make([]byte, 4+maxChunk)
	for _, l := range c.layers {
		if err := sendLayer(w, l.Content, buf); err != nil {
			return err
		}
	}
	return nil
}

// stop ends waiting reads of layers.
func (c *call) stop() error {
	var errs []error
	for _, l := range c.layers {
		errs = append(errs, l.Content.Close())
	}
	return errors.Join(errs...)
}
