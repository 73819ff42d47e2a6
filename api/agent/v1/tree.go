package agentv1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strings"

	"github.com/containerd/errdefs"
)

// The kinds of a tree's entries.
const (
	KindFile    = "file"    // Size bytes follow
	KindDir     = "dir"     // before its content
	KindSymlink = "symlink" // to Target
	KindLink    = "link"    // a hard link to the entry named Target
	KindSkipped = "skipped" // none of these, such as a device or a socket; Target says why
	KindEnd     = "end"     // end of the tree, with the error
)

// The bounds of an entry.
const (
	MaxName  = 4096 // bytes of a name, and of a target
	maxEntry = 32 << 10
)

// Pack asks for a tree of files in a container: a file, or a directory with its content. Path's symbolic links are
// resolved in the container, including the last one. Entries' names begin with TreeBase of the path.
type Pack struct {
	Container string `json:"container"`
	Path      string `json:"path"`
}

// Unpack writes a tree into a container. If Path is a directory, the tree comes into it; otherwise the tree becomes
// Path in an existing directory. With Into, Path must be a directory, and the tree may have several roots. Existing
// files are replaced, but only a directory replaces a directory.
type Unpack struct {
	Container string `json:"container"`
	Path      string `json:"path"`
	Into      bool   `json:"into,omitempty"`
}

// Entry is one file of a tree. Names are slash-separated and relative.
type Entry struct {
	Kind   string `json:"kind"`
	Name   []byte `json:"name,omitempty"` // names need not be text
	Target []byte `json:"target,omitempty"`
	Mode   uint32 `json:"mode,omitempty"` // permissions, with 07000
	Size   int64  `json:"size,omitempty"` // of a file, in bytes
	MTime  int64  `json:"mtime,omitempty"`
	Error  *Error `json:"error,omitempty"` // of the end
}

// TreeBase returns the beginning of the names of a tree's entries. It is the last part of the path, or "." if that
// is a directory's own name ("dir/.", "..", "/").
func TreeBase(name string) string {
	if base := path.Base(name); !strings.HasSuffix(name, "/.") && path.Clean(name) != "/" && base != ".." {
		return base
	}
	return "."
}

// WriteEntry writes an entry's frame. The caller writes a file's bytes.
func WriteEntry(w io.Writer, e Entry) error { return WriteFrame(w, e, maxEntry) }

// ReadEntry reads an entry and validates it.
func ReadEntry(r io.Reader) (Entry, error) {
	var e Entry
	if err := ReadFrame(r, &e, maxEntry); err != nil {
		return Entry{}, unexpected(err)
	}
	if len(e.Name) > MaxName || len(e.Target) > MaxName || e.Size < 0 || e.Size > 0 && e.Kind != KindFile {
		return Entry{}, fmt.Errorf("entry %.80q of a tree: %w", e.Name, errdefs.ErrInvalidArgument)
	}
	return e, nil
}

// TreeReader reads a tree from the guest. Only one goroutine may use it, but any may call Close.
type TreeReader struct {
	conn net.Conn
	left int64 // of the current file
}

// Pack starts reading a tree. The context covers only the start.
func (c *Client) Pack(ctx context.Context, r Pack) (*TreeReader, error) {
	conn, stop, err := c.startCall(ctx, OpPack, r, nil)
	if err != nil {
		return nil, err
	}
	if !stop() {
		conn.Close()
		return nil, context.Cause(ctx)
	}
	return &TreeReader{conn: conn}, nil
}

// Next returns the next entry and skips the rest of the current file. It returns io.EOF after the last one, and the
// agent's error if the tree is incomplete.
func (t *TreeReader) Next() (Entry, error) {
	if _, err := io.CopyN(io.Discard, t.conn, t.left); err != nil {
		return Entry{}, fmt.Errorf("agent %s: %w", OpPack, unexpected(err))
	}
	t.left = 0
	e, err := ReadEntry(t.conn)
	switch {
	case err != nil:
		return Entry{}, fmt.Errorf("agent %s: %w", OpPack, err)
	case e.Kind == KindEnd && e.Error != nil:
		return Entry{}, fmt.Errorf("agent %s: %w", OpPack, e.Error.bounded())
	case e.Kind == KindEnd:
		return Entry{}, io.EOF
	}
	t.left = e.Size
	return e, nil
}

// Read reads the current file.
func (t *TreeReader) Read(p []byte) (int, error) {
	if t.left == 0 {
		return 0, io.EOF
	}
	n, err := t.conn.Read(p[:min(int64(len(p)), t.left)])
	t.left -= int64(n)
	if errors.Is(err, io.EOF) && t.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close ends the tree.
func (t *TreeReader) Close() error { return t.conn.Close() }

// TreeWriter sends a tree to the guest. Only one goroutine may call Add and End, but any may call Close.
type TreeWriter struct {
	conn net.Conn
	done chan struct{} // closed after the agent's answer
	err  error         // the agent's error
}

// Unpack starts writing a tree. The context covers only the start, until the agent has checked the destination.
func (c *Client) Unpack(ctx context.Context, r Unpack) (*TreeWriter, error) {
	conn, stop, err := c.startCall(ctx, OpUnpack, r, nil)
	if err != nil {
		return nil, err
	}
	if !stop() {
		conn.Close()
		return nil, context.Cause(ctx)
	}
	w := &TreeWriter{conn: conn, done: make(chan struct{})}
	go w.await()
	return w, nil
}

// await reads the second answer. An early one means that the agent accepts no more data, and ends the writing.
func (w *TreeWriter) await() {
	defer close(w.done)
	var reply Reply
	if err := ReadFrame(w.conn, &reply, MaxReply); err != nil {
		w.err = fmt.Errorf("agent %s: %w", OpUnpack, unexpected(err))
	} else if reply.Error != nil {
		w.err = fmt.Errorf("agent %s: %w", OpUnpack, reply.Error.bounded())
	}
	w.conn.Close()
}

// Add sends an entry, and a file's content: e.Size bytes of it.
func (w *TreeWriter) Add(e Entry, content io.Reader) error {
	if err := WriteEntry(w.conn, e); err != nil {
		return w.why(err)
	}
	if e.Size == 0 {
		return nil
	}
	if _, err := io.CopyN(markedWriter{w.conn}, content, e.Size); err != nil {
		if failed := (*writeError)(nil); errors.As(err, &failed) {
			return w.why(err)
		}
		return fmt.Errorf("read %.128q: %w", e.Name, unexpected(err))
	}
	return nil
}

// why returns the agent's reason for not accepting data.
func (w *TreeWriter) why(err error) error {
	w.conn.Close()
	<-w.done
	if w.err != nil {
		return w.err
	}
	return err
}

// End sends the tree's end and returns when the agent has stored all of it.
func (w *TreeWriter) End() error {
	if WriteEntry(w.conn, Entry{Kind: KindEnd}) != nil {
		// The answer says why, or that all is well. It may arrive and end the stream before the write that it
		// answers has returned.
		w.conn.Close()
	}
	<-w.done
	return w.err
}

// Close ends the tree, complete or not.
func (w *TreeWriter) Close() error {
	err := w.conn.Close()
	<-w.done
	return err
}

// markedWriter distinguishes a failed write from a failed read, which io.CopyN does not.
type markedWriter struct{ w io.Writer }

type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

func (t markedWriter) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if err != nil {
		err = &writeError{err}
	}
	return n, err
}
