// Package stdio opens the streams of a process as containerd names them: fifos, files and logging programs. The result
// are plain descriptors for the process that holds them. The front itself never reads or writes a stream.
package stdio

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Names are the names of a process's streams in containerd's request. An empty name means no stream.
type Names struct {
	Stdin, Stdout, Stderr string
	Terminal              bool // stdout has everything that the terminal shows
}

// Owner is the process that a logging program gets the streams of.
type Owner struct {
	Namespace string
	ID        string // the container's, or the exec's
}

// Streams are the open streams of one process.
type Streams struct {
	// The process's ends, for its holder. Nil means no stream.
	Stdin, Stdout, Stderr *os.File

	input  input
	logger *logger
}

// Open opens the streams of names. The caller calls Release when another process has the descriptors,
// HoldStdin when the process runs, and Close at the end.
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
		if s.Stdin, err = s.input.open(names.Stdin); err != nil {
			return err
		}
	}
	if s.Stdout, err = openOutput(ctx, "stdout", names.Stdout); err != nil || names.Terminal {
		return err
	}
	s.Stderr, err = openOutput(ctx, "stderr", names.Stderr)
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
	return "", nil, errclass.New(errdefs.ErrNotImplemented,
		"open stdout %.200q: unsupported stream: the scheme must be binary, binary-v2 or file", name)
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

// HoldStdin keeps the process's input open until CloseStdin, also while containerd's client is away. The caller calls it
// when the process runs. Input that the client has ended before stays ended.
func (s *Streams) HoldStdin() { s.input.hold() }

// CloseStdin lets the process see the end of its input, once the client has closed its end too.
func (s *Streams) CloseStdin() { s.input.close() }

// Close releases the rest when the process has ended, and waits until its logging program has read everything. It is
// idempotent.
func (s *Streams) Close() {
	s.CloseStdin()
	if s.logger != nil {
		s.logger.close()
	}
}
