package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
)

// stallLimit is the time without data after which a registry counts as gone.
const stallLimit = 2 * time.Minute

// blob is a layer that is being fetched: a file that is written and, from the first byte on, read at the same time.
type blob struct {
	info types.BlobInfo
	file *os.File // without a name

	mu      sync.Mutex
	changed sync.Cond
	written int64
	err     error // io.EOF: complete and verified
}

func newBlob(info types.BlobInfo, dir string) (*blob, error) {
	f, err := nameless(dir)
	if err != nil {
		return nil, err
	}
	b := &blob{info: info, file: f}
	b.changed.L = &b.mu
	return b, nil
}

// fetch reads the blob from its source to the end and verifies it. Its readers get the error as well.
func (b *blob) fetch(ctx context.Context, src types.ImageSource, report func(Progress)) error {
	if err := b.copy(ctx, src, report); err != nil {
		err = fmt.Errorf("blob %s: %w", b.info.Digest, err)
		b.fail(err)
		return err
	}
	b.fail(io.EOF)
	return nil
}

func (b *blob) copy(ctx context.Context, src types.ImageSource, report func(Progress)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallLimit, func() { cancel(errStalled) })
	defer stall.Stop()
	in, size, err := src.GetBlob(ctx, b.info, none.NoCache)
	if err != nil {
		return broken(src, stalled(ctx, err))
	}
	defer in.Close()
	p := Progress{Digest: b.info.Digest.String(), Total: size}
	if p.Total < 0 {
		p.Total = b.info.Size
	}
	report(p)
	verifier := b.info.Digest.Verifier()
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil { // a file's reader does not check ctx
			return stalled(ctx, err)
		}
		n, readErr := in.Read(buf)
		if n > 0 {
			stall.Reset(stallLimit)
			_, _ = verifier.Write(buf[:n]) // a hash does not fail
			if _, err := b.file.WriteAt(buf[:n], p.Offset); err != nil {
				return err
			}
			p.Offset += int64(n)
			b.advance(p.Offset)
			report(p)
			if b.info.Size >= 0 && p.Offset > b.info.Size {
				return fmt.Errorf("%w: longer than the %d bytes of the manifest", ErrDigest, b.info.Size)
			}
		}
		if atEOF(readErr) {
			break
		}
		if readErr != nil {
			return broken(src, stalled(ctx, readErr))
		}
	}
	if !verifier.Verified() {
		return fmt.Errorf("%w: got %d bytes with another digest", ErrDigest, p.Offset)
	}
	p.Done = true
	report(p)
	return nil
}

var errStalled = fmt.Errorf("%w: no data for %v", ErrUnavailable, stallLimit)

// stalled returns the reason why ctx ended, if there is one, in place of err.
func stalled(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// atEOF distinguishes the end of a stream from a failure of another stream: the error of a broken connection wraps
// io.EOF.
func atEOF(err error) bool { return err == io.EOF } //nolint:errorlint // see above

// broken adds the class of a failed transfer: an unavailable registry, or an invalid file.
func broken(src types.ImageSource, err error) error {
	named := src.Reference().DockerReference()
	if src.Reference().Transport().Name() != docker.Transport.Name() || named == nil {
		return withClass(ErrInvalid, err)
	}
	if c := classify(err, reference.Domain(named)); errors.Is(c, ErrUnauthorized) {
		return c
	}
	return withClass(ErrUnavailable, err)
}

func withClass(class, err error) error {
	if classified(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &classError{class, err, fmt.Sprintf("%v: %s", class, oneLine(err))}
}

func (b *blob) advance(written int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written = written
	b.changed.Broadcast()
}

// reader returns the blob from its start. A Read waits for data; io.EOF means complete and verified.
func (b *blob) reader() io.ReadCloser { return &blobReader{b: b} }

// errStopped ends reads of a layer after its reader was closed.
var errStopped = errors.New("reading stopped")

type blobReader struct {
	b      *blob
	at     int64
	closed bool // guarded by b.mu
}

func (r *blobReader) Read(p []byte) (int, error) {
	r.b.mu.Lock()
	for r.at >= r.b.written && r.b.err == nil && !r.closed {
		r.b.changed.Wait()
	}
	written, err := r.b.written, r.b.err
	if r.closed {
		err = errStopped
	}
	r.b.mu.Unlock()
	if err != nil && !atEOF(err) {
		return 0, err
	}
	if r.at >= written {
		return 0, io.EOF
	}
	n, err := r.b.file.ReadAt(p[:min(int64(len(p)), written-r.at)], r.at)
	r.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Close ends a waiting Read. The blob and its other readers go on.
func (r *blobReader) Close() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.closed = true
	r.b.changed.Broadcast()
	return nil
}

// fail ends waiting reads, with err unless there is an error already.
func (b *blob) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.changed.Broadcast()
}

// close frees the file.
func (b *blob) close() error { return b.file.Close() }

// readBlob reads a small blob and verifies it.
func readBlob(ctx context.Context, src types.ImageSource, info types.BlobInfo) (data []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("blob %s: %w", info.Digest, err)
		}
	}()
	in, _, err := src.GetBlob(ctx, info, none.NoCache)
	if err != nil {
		return nil, broken(src, err)
	}
	defer in.Close()
	data, err = io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err != nil {
		return nil, broken(src, err)
	}
	if len(data) > maxManifest {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrInvalid, maxManifest)
	}
	if info.Digest.Algorithm().FromBytes(data) != info.Digest {
		return nil, ErrDigest
	}
	return data, nil
}
