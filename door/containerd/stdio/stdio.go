// Package stdio opens the streams of a process as containerd names them: fifos, files and logging programs. The result
// are plain descriptors for the process that holds them. The front itself never reads or writes a stream.
package stdio

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Names are the names of a process's streams in containerd's request. An empty name means no stream.
type Names struct {
	Stdin, Stdout, Stderr string
	Terminal              bool // stdout has everything that the terminal shows
}

// ErrUnsupported is matched by the error for a stream of an unknown kind.
var ErrUnsupported = errors.New("unsupported stream")

// Owner is the process that a logging program gets the streams of.
type Owner struct {
	Namespace string
	ID        string // the container's, or the exec's
}

// Streams are the open streams of one process.
type Streams struct {
	// The process's ends, for its holder. Nil means no stream.
	Stdin, Stdout, Stderr *os.File

	mu     sync.Mutex
	writer *os.File // keeps stdin open until CloseStdin, whether or not containerd's client is connected
	logger *logger
}

// Open opens the streams of names. The caller calls Release when another process has the descriptors, and Close at the end.
func Open(ctx context.Context, names Names, owner Owner) (*Streams, error) {
	s := &Streams{}
	if err := s.open(ctx, names, owner); err != nil {
		s.Release()
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Streams) open(ctx context.Context, names Names, owner Owner) error {
	kind, rest, err := kindOf(names.Stdout)
	if err != nil {
		return err
	}
	switch kind {
	case "binary", "binary-v2":
		return s.startLogger(ctx, rest, owner, kind == "binary-v2")
	case "file":
		return s.openFile(rest.Path, names)
	}
	if names.Stdin != "" {
		if err := s.openStdin(names.Stdin); err != nil {
			return err
		}
	}
	if s.Stdout, err = openOutput("stdout", names.Stdout); err != nil || names.Terminal {
		return err
	}
	s.Stderr, err = openOutput("stderr", names.Stderr)
	return err
}

// kindOf returns the scheme of a stream's name. A plain path is a fifo.
func kindOf(name string) (string, *url.URL, error) {
	if !strings.Contains(name, "://") {
		return "fifo", nil, nil
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", nil, fmt.Errorf("open stdout: %w", err)
	}
	switch u.Scheme {
	case "binary", "binary-v2", "file":
		if u.Path == "" || u.Path[0] != '/' {
			return "", nil, fmt.Errorf("open stdout %.200q: the path must be absolute", name)
		}
		return u.Scheme, u, nil
	}
	return "", nil, fmt.Errorf("open stdout %.200q: %w: the scheme must be binary, binary-v2 or file", name, ErrUnsupported)
}

// openStdin opens the fifo at path. The process sees the end of its input when both the client and CloseStdin have closed
// their ends. Containerd relies on that: its client closes its end whenever it disconnects.
func (s *Streams) openStdin(path string) (err error) {
	// Opening for both directions never blocks, and the read end then finds a writer.
	if s.writer, err = open("stdin", path, unix.O_RDWR); err == nil {
		s.Stdin, err = open("stdin", path, unix.O_RDONLY)
	}
	return err
}

// openOutput opens an output. A fifo is also open for reading: the process waits while its client is away, instead of
// dying by SIGPIPE.
func openOutput(stream, path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, fmt.Errorf("open %s: %w", stream, &os.PathError{Op: "stat", Path: path, Err: err})
	}
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		return open(stream, path, unix.O_RDWR)
	}
	return open(stream, path, unix.O_WRONLY|unix.O_APPEND)
}

// open opens a file in blocking mode, which its next holder expects.
func open(stream, path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", stream, &os.PathError{Op: "open", Path: path, Err: err})
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Release closes the process's ends here, once their holder has copies. Otherwise readers would never see an end.
func (s *Streams) Release() {
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		f.Close() // fails on nil, and for a file that is two streams
	}
}

// CloseStdin lets the process see the end of its input once the client has closed its end too.
func (s *Streams) CloseStdin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writer.Close() // fails on nil and the second time
}

// Close releases the rest when the process has ended, and waits until its logging program has read everything. It is
// idempotent.
func (s *Streams) Close() {
	s.CloseStdin()
	if s.logger != nil {
		s.logger.close()
	}
}
