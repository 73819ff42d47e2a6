package service

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strings"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// maxSkipped bounds the reports of skipped files.
const maxSkipped = 100

// copyOut sends a tree of a container as a tar stream.
func (e extension) copyOut(id, from string) stream.Handler {
	return func(ctx context.Context) (func(context.Context, *net.UnixConn), error) {
		tree, err := e.o.Sandbox.Pack(ctx, id, from)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, conn *net.UnixConn) {
			defer tree.Close()
			stop := context.AfterFunc(ctx, func() { tree.Close() })
			defer stop()
			// The client sends nothing; only its end matters.
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				_, _ = io.Copy(io.Discard, conn)
				tree.Close()
			}()
			w := stream.NewWriter(conn)
			sendResult(w, sendTar(w, tree))
			conn.Close()
			<-gone
		}, nil
	}
}

// sendResult sends the result of a copy, if the client is still there.
func sendResult(w *stream.Writer, err error) {
	if err == nil {
		_ = w.Frame(stream.Exited, stream.EncodeExit(0))
		return
	}
	_ = w.Frame(stream.Failed, []byte(bounded(err)))
}

// sendTar sends a tree as a tar stream. It passes on the guest's names, sizes and kinds unchecked; the receiver checks
// them.
func sendTar(w *stream.Writer, tree *agentv1.TreeReader) error {
	out := bufio.NewWriterSize(w.Channel(stream.Stdout), stream.MaxFrame)
	archive := tar.NewWriter(out)
	notes := skipped{w: w.Channel(stream.Stderr)}
	for {
		entry, err := tree.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		header := tarHeader(entry)
		if header == nil {
			notes.add(entry.Name, string(entry.Target))
			continue
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("%.200q: %w", entry.Name, err)
		}
		if _, err := io.Copy(archive, tree); err != nil {
			return fmt.Errorf("%.200q: %w", entry.Name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// skipped reports skipped files, up to a bound.
type skipped struct {
	w io.Writer
	n int
}

func (s *skipped) add(name []byte, why string) {
	if s.n++; s.n > maxSkipped {
		return
	}
	fmt.Fprintf(s.w, "left out %.200q: %.200q\n", name, why)
}

func tarHeader(e agentv1.Entry) *tar.Header {
	h := &tar.Header{Format: tar.FormatPAX, Name: string(e.Name), Mode: int64(e.Mode & 0o7777), ModTime: time.Unix(0, e.MTime)}
	switch e.Kind {
	case agentv1.KindFile:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	case agentv1.KindDir:
		h.Typeflag = tar.TypeDir
		h.Name = strings.TrimSuffix(h.Name, "/") + "/"
	case agentv1.KindSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(e.Target)
	case agentv1.KindLink:
		h.Typeflag, h.Linkname = tar.TypeLink, string(e.Target)
	default:
		return nil
	}
	return h
}

// copyIn unpacks a client's tar stream in a container.
func (e extension) copyIn(id, to string, into bool) stream.Handler {
	return func(ctx context.Context) (func(context.Context, *net.UnixConn), error) {
		tree, err := e.o.Sandbox.Unpack(ctx, id, to, into)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, conn *net.UnixConn) {
			defer tree.Close()
			stop := context.AfterFunc(ctx, func() { tree.Close() })
			defer stop()
			w := stream.NewWriter(conn)
			// receiveTar does not notice the client's end while the pod reads nothing.
			unwatch, err := stream.OnHangup(conn, func() { tree.Close() })
			if err != nil {
				sendResult(w, err)
				return
			}
			defer unwatch()
			in, feed := io.Pipe()
			received := make(chan struct{})
			go func() {
				defer close(received)
				receiveTar(stream.NewReader(conn), feed)
			}()
			err = sendEntries(w, bufio.NewReaderSize(in, stream.MaxFrame), tree)
			in.CloseWithError(io.ErrClosedPipe)
			sendResult(w, err)
			conn.Close()
			<-received
		}, nil
	}
}

// receiveTar reads the client's frames until its end.
func receiveTar(r *stream.Reader, feed *io.PipeWriter) {
	for {
		ch, payload, err := r.Next()
		switch {
		case err != nil:
			feed.CloseWithError(io.ErrUnexpectedEOF)
			return
		case ch == stream.Stdin && len(payload) == 0:
			feed.Close()
		case ch == stream.Stdin:
			_, _ = feed.Write(payload) // fails if the copy has ended, which is reported elsewhere
		}
	}
}

// sendEntries sends the entries of a tar stream to the guest.
func sendEntries(w *stream.Writer, r io.Reader, tree *agentv1.TreeWriter) error {
	archive := tar.NewReader(r)
	notes := skipped{w: w.Channel(stream.Stderr)}
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		entry, ok := treeEntry(h)
		if !ok {
			if h.Typeflag != tar.TypeXGlobalHeader {
				notes.add([]byte(h.Name), "not a file, directory or link")
			}
			continue
		}
		if err := tree.Add(entry, archive); err != nil {
			return err
		}
	}
	// Read the rest after the archive's end, because the client waits for that.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	return tree.End()
}

func treeEntry(h *tar.Header) (agentv1.Entry, bool) {
	name := path.Clean(h.Name)
	if h.Name == "." || strings.HasPrefix(h.Name, "./") && name != "." {
		name = "./" + name
	}
	e := agentv1.Entry{Name: []byte(name), Mode: uint32(h.Mode & 0o7777), MTime: h.ModTime.UnixNano()}
	switch h.Typeflag {
	case tar.TypeReg:
		e.Kind, e.Size = agentv1.KindFile, h.Size
	case tar.TypeDir:
		e.Kind = agentv1.KindDir
	case tar.TypeSymlink:
		e.Kind, e.Target = agentv1.KindSymlink, []byte(h.Linkname)
	case tar.TypeLink:
		e.Kind, e.Target = agentv1.KindLink, []byte(h.Linkname)
	default:
		return e, false
	}
	return e, true
}
