package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/go-digest"
)

var (
	errStopped = errors.New("reading stopped")
	// errDamaged: a stream does not have its format.
	errDamaged = errors.New("damaged")
	// errDigest: content does not have its digest.
	errDigest = errors.New("digest does not match")
)

const (
	aheadPiece  = 256 << 10
	aheadPieces = 8
)

// readAhead decompresses and hashes a layer in a goroutine of its own, a few
// pieces ahead of its reader. stop ends that goroutine and waits for it.
type readAhead struct {
	pieces   chan []byte
	free     chan []byte
	quit     chan struct{}
	err      error // valid after pieces is closed
	verified bool
	rest     []byte
	current  []byte
}

func newReadAhead(in io.Reader, verifier digest.Verifier) *readAhead {
	a := &readAhead{
		pieces: make(chan []byte, aheadPieces),
		free:   make(chan []byte, aheadPieces+2),
		quit:   make(chan struct{}),
	}
	for range cap(a.free) {
		a.free <- make([]byte, aheadPiece)
	}
	go a.run(in, verifier)
	return a
}

func (a *readAhead) run(in io.Reader, verifier digest.Verifier) {
	defer close(a.pieces)
	buffered := bufio.NewReaderSize(in, aheadPiece)
	stream, err := decompress(buffered)
	if errors.Is(err, errPlain) {
		stream, err = io.NopCloser(buffered), nil
	}
	if err != nil {
		a.err = damaged(err)
		return
	}
	defer stream.Close()
	for {
		var buf []byte
		select {
		case buf = <-a.free:
		case <-a.quit:
			a.err = errStopped
			return
		}
		n, err := io.ReadFull(stream, buf)
		_, _ = verifier.Write(buf[:n]) // a hash does not fail
		if n > 0 {
			select {
			case a.pieces <- buf[:n]:
			case <-a.quit:
				a.err = errStopped
				return
			}
		}
		if atEOF(err) || errors.Is(err, io.ErrUnexpectedEOF) && n > 0 && a.atEnd(stream) {
			// Read the compressed bytes to their end too: only then is their digest known.
			if _, err := io.Copy(io.Discard, in); err != nil {
				a.err = damaged(err)
				return
			}
			a.verified = verifier.Verified()
			return
		}
		if err != nil {
			a.err = damaged(err)
			return
		}
	}
}

// atEnd distinguishes a short last piece from a truncated stream, which fails instead of ending.
func (a *readAhead) atEnd(stream io.Reader) bool {
	var one [1]byte
	n, err := stream.Read(one[:])
	return n == 0 && atEOF(err)
}

// damaged marks an error as the compressed stream's, unless it is the engine's or this host's.
func damaged(err error) error {
	var host *os.PathError
	if errors.As(err, &host) || errors.Is(err, errStopped) || errors.Is(err, errDamaged) {
		return err
	}
	return fmt.Errorf("%w: decompress: %w", errDamaged, err)
}

// Read must be called by one goroutine at a time.
func (a *readAhead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.current != nil {
			a.free <- a.current[:aheadPiece]
			a.current = nil
		}
		piece, ok := <-a.pieces
		if !ok {
			if a.err != nil {
				return 0, a.err
			}
			return 0, io.EOF
		}
		a.current, a.rest = piece, piece
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// stop waits for the goroutine, and reports whether the whole stream was read and verified. The caller must end a
// blocked fetch first.
func (a *readAhead) stop() (bool, error) {
	close(a.quit)
	for range a.pieces {
	}
	return a.verified, a.err
}
