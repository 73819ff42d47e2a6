package clients

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
)

// transcript keeps everything that a stream carries. It is safe for concurrent use.
type transcript struct {
	stream io.ReadCloser
	mu     sync.Mutex
	said   strings.Builder
	heard  chan struct{} // holds one value
	ended  chan struct{}
}

// newTranscript reads a stream until its end.
func newTranscript(r io.ReadCloser) *transcript {
	s := &transcript{stream: r, heard: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for b := make([]byte, 32<<10); ; {
			n, err := r.Read(b)
			s.mu.Lock()
			s.said.Write(b[:n])
			s.mu.Unlock()
			select {
			case s.heard <- struct{}{}:
			default:
			}
			if err != nil {
				return // a terminal ends with an error
			}
		}
	}()
	return s
}

// hangUp stops reading.
func (s *transcript) hangUp() { _ = s.stream.Close() }

// text returns everything that the stream has carried so far.
func (s *transcript) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

// await waits until the stream has carried a text.
func (s *transcript) await(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	for !strings.Contains(s.text(), want) {
		select {
		case <-s.heard:
		case <-s.ended:
			if strings.Contains(s.text(), want) {
				return
			}
			t.Fatalf("the stream ended without %q: %q", want, s.text())
		case <-ctx.Done():
			t.Fatalf("the stream does not carry %q: %v: %q", want, context.Cause(ctx), s.text())
		}
	}
}

// all returns everything, at the end of the stream.
func (s *transcript) all(ctx context.Context, t *testing.T) string {
	t.Helper()
	select {
	case <-s.ended:
	case <-ctx.Done():
		t.Fatalf("the stream does not end: %v: %q", context.Cause(ctx), s.text())
	}
	return s.text()
}
