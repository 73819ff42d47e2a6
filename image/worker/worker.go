// Package worker is the process that reads the content of images, for package convert: compressed streams, tar
// archives, and the writer of disks. Before it reads a byte of an image it gives up everything but its open descriptors
// and its memory (Confine).
package worker

import (
	"bufio"
	"context"
	_ "crypto/sha256" // the algorithms of digests
	_ "crypto/sha512"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/image/erofs"
	"github.com/bulkhead-project/bulkhead/image/layer"
)

const inputBuffer = 512 << 10

// Run serves the one request on convert.InputFD. It returns an error only if it cannot send a reply.
func Run() error {
	in, out := blocking(convert.InputFD, "input"), blocking(convert.ReplyFD, "reply")
	req, err := convert.ReadRequest(in)
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if err := Confine(req.Limit); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	reply, err := serve(req, bufio.NewReaderSize(in, inputBuffer))
	if err != nil {
		reply = convert.Reply{Fault: fault(err)}
	}
	return convert.Send(out, reply)
}

// blocking returns an inherited descriptor without Go's poller, which would need more system calls.
func blocking(fd int, name string) *os.File {
	// If it fails, the file is polled, or the descriptor is invalid.
	_ = syscall.SetNonblock(fd, false)
	return os.NewFile(uintptr(fd), name)
}

func serve(req convert.Request, in io.Reader) (convert.Reply, error) {
	source := blocking(convert.SourceFD, "source")
	if req.Task == convert.ToDisk {
		size, err := disk(req, in, source)
		return convert.Reply{Size: size}, err
	}
	spare := blocking(convert.SpareFD, "spare")
	switch req.Task {
	case convert.ToIndex:
		return index(source, spare, req.Limit)
	case convert.ToLayer:
		return convert.Reply{}, export(source, spare)
	}
	return convert.Reply{}, fmt.Errorf("unknown task %q", req.Task)
}

// disk merges the layers that come from in.
func disk(req convert.Request, in io.Reader, disk *os.File) (int64, error) {
	out := erofs.NewWriter(disk, req.Limit)
	tree := layer.NewTree(out, layer.DefaultLimits)
	for i, diffID := range req.DiffIDs {
		if err := applyLayer(tree, convert.NewLayerReader(in), diffID); err != nil {
			return 0, &layerError{i, err}
		}
		out.Flush()
	}
	return out.Finish(tree.Root)
}

// layerError names the faulty layer.
type layerError struct {
	layer int
	err   error
}

func (e *layerError) Error() string { return e.err.Error() }
func (e *layerError) Unwrap() error { return e.err }

// fault returns err in the form for the engine.
func fault(err error) *convert.Error {
	f := &convert.Error{Kind: convert.Host, Layer: -1, Text: err.Error()}
	var of *layerError
	if errors.As(err, &of) {
		f.Layer = of.layer
	}
	switch {
	case errors.Is(err, layer.ErrHostile), errors.Is(err, errDamaged):
		f.Kind = convert.Invalid
	case errors.Is(err, errDigest):
		f.Kind = convert.Digest
	case errors.Is(err, erofs.ErrTooLarge), errors.Is(err, unix.EFBIG):
		f.Kind = convert.Large
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		f.Kind = convert.Space
	}
	return f
}

// applyLayer decompresses in one goroutine and merges in the caller's, to use two processors. It returns when both are
// done.
func applyLayer(tree *layer.Tree, in io.Reader, diffID digest.Digest) error {
	ahead := newReadAhead(in, diffID.Verifier())
	err := tree.Apply(context.Background(), ahead) // cancelled by killing the process
	if err != nil {
		return err // the process's end ends the other goroutine
	}
	verified, err := ahead.stop()
	switch {
	case err != nil:
		return err
	case !verified:
		return fmt.Errorf("%w: uncompressed content is not %s", errDigest, diffID)
	}
	return nil
}
