package fdpass

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Bounds of a Store.
const (
	MaxName   = 255
	MaxStored = 64
	// Patience is the time after which an unused file is closed.
	Patience = time.Minute
)

// ErrNoFile is returned by a Store for a name without a file.
var ErrNoFile = errdefs.ErrNotFound.WithMessage("no such file was sent")

// SendNamed sends f under name to a Store and returns when it is stored. If f is nil, the Store closes the unused file
// of that name.
func SendNamed(ctx context.Context, conn *net.UnixConn, name string, f *os.File) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("file name of %d bytes: must be 1 to %d", len(name), MaxName)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var files []*os.File
	if f != nil {
		files = append(files, f)
	}
	if err := Send(conn, []byte(name), files...); err != nil {
		return withCause(ctx, err)
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 1024))
	if err != nil {
		return withCause(ctx, err)
	}
	if string(answer) != "ok" {
		return fmt.Errorf("refused: %s", strings.TrimSpace(string(answer)))
	}
	return nil
}

// Store keeps files that were sent under a name until a call takes them. A newer file replaces one of the same name.
// Its methods are safe for concurrent use.
type Store struct {
	mu     sync.Mutex
	files  map[string]*entry
	closed bool
}

type entry struct {
	file  *os.File
	timer *time.Timer
}

// Add stores f, and closes it unless it is removed within Patience. On an error the caller still owns f.
func (s *Store) Add(name string, f *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if old := s.files[name]; old != nil {
		old.drop()
	} else if len(s.files) >= MaxStored {
		return errclass.New(errdefs.ErrResourceExhausted, "too many sent files are waiting for their calls")
	}
	if s.files == nil {
		s.files = map[string]*entry{}
	}
	e := &entry{file: f}
	e.timer = time.AfterFunc(Patience, func() { s.expire(name, e) })
	s.files[name] = e
	return nil
}

// Remove removes and returns the file sent under name, or returns ErrNoFile. The caller then owns the file.
func (s *Store) Remove(name string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.files[name]
	if e == nil {
		return nil, fmt.Errorf("file %q: %w", name, ErrNoFile)
	}
	e.timer.Stop()
	delete(s.files, name)
	return e.file, nil
}

// Drop closes the file sent under name, if there is one.
func (s *Store) Drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.files[name]; e != nil {
		delete(s.files, name)
		e.drop()
	}
}

// Close closes every file that was not removed, and refuses new ones.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, e := range s.files {
		e.drop()
	}
	s.files = nil
}

func (s *Store) expire(name string, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[name] == e {
		delete(s.files, name)
		e.file.Close()
	}
}

func (e *entry) drop() {
	e.timer.Stop()
	e.file.Close()
}

// Receive serves one connection of SendNamed.
func (s *Store) Receive(conn *net.UnixConn) error {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, MaxName)
	n, files, err := Receive(conn, buf)
	switch {
	case err != nil:
	case len(files) > 1 || n == 0:
		err = fmt.Errorf("got %d files with a name of %d bytes", len(files), n)
	case len(files) == 0:
		s.Drop(string(buf[:n]))
	default:
		err = s.Add(string(buf[:n]), files[0])
	}
	if err != nil {
		CloseAll(files)
		fmt.Fprint(conn, err)
		return err
	}
	_, err = io.WriteString(conn, "ok")
	return err
}

func withCause(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	return err
}
