package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
)

// ErrDetached is returned by Stdio.Run when the connection ended before the process did, because the shim ended or
// another client took the stream over.
var ErrDetached = errors.New("stream ended before its process")

// ErrLeft is returned by Stdio.Run after a Read of Stdin returned it: this client left on purpose. The shim is
// notified, and the process lives on.
var ErrLeft = errors.New("detached from the stream")

// Stdio is the client's end of an attached process's standard streams.
type Stdio struct {
	// Stdin is read until its end, which ends the process's stdin, or until ErrLeft. nil sends nothing and leaves the
	// process's stdin open.
	Stdin io.Reader
	// Stdout and Stderr receive the process's output; nil discards it.
	Stdout, Stderr io.Writer
	// Resize receives new sizes of the terminal; it may be nil.
	Resize <-chan Size
}

// Run carries the streams over a connection of OpenStream (ATTACH) or Dial until the process ends, and returns its exit
// code. It closes conn. Run may return while a Read of Stdin is blocked. The goroutine then ends when the Read returns,
// and sends nothing more.
func (s Stdio) Run(ctx context.Context, conn net.Conn) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	w := NewWriter(conn)
	var left atomic.Bool
	if s.Stdin != nil {
		go func() {
			in := w.Channel(Stdin)
			switch _, err := io.Copy(onlyWriter{in}, s.Stdin); {
			case err == nil:
				in.Close()
			case errors.Is(err, ErrLeft):
				left.Store(true)
				_ = w.Frame(Leave, nil) // fails if the shim is gone
				cancel()
			}
		}()
	}
	if s.Resize != nil {
		go resize(ctx, w, s.Resize)
	}
	code, err := s.receive(NewReader(conn))
	switch {
	case err == nil:
	case left.Load():
		return 0, ErrLeft
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}
	return code, err
}

func (s Stdio) receive(r *Reader) (int, error) {
	for {
		ch, p, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return 0, ErrDetached
		case err != nil:
			return 0, fmt.Errorf("%w: %w", ErrDetached, err)
		}
		switch ch {
		case Stdout:
			err = writeTo(s.Stdout, p)
		case Stderr:
			err = writeTo(s.Stderr, p)
		case Failed:
			return 0, errors.New(strings.ToValidUTF8(string(p), "?"))
		case Exited:
			if len(p) != 4 {
				return 0, fmt.Errorf("%w: an exit code of %d bytes", ErrProtocol, len(p))
			}
			return int(binary.BigEndian.Uint32(p)), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

func writeTo(w io.Writer, p []byte) error {
	if w == nil || len(p) == 0 {
		return nil
	}
	_, err := w.Write(p)
	return err
}

func resize(ctx context.Context, w *Writer, sizes <-chan Size) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok || w.Frame(Resize, size.encode()) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// onlyWriter hides the methods that io.Copy would prefer to Write.
type onlyWriter struct{ io.Writer }
