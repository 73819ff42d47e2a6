package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/datagrams"
	"github.com/bulkhead-project/bulkhead/agent/internal/stdio"
	"github.com/bulkhead-project/bulkhead/agent/internal/tcp"
	"github.com/bulkhead-project/bulkhead/agent/internal/tree"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// body decodes the JSON body of a request. The error matches errdefs.ErrInvalidArgument.
func body[T any](s *agentv1.Stream) (v T, err error) {
	if err = json.Unmarshal(s.Body, &v); err != nil {
		err = fmt.Errorf("decode body: %w: %w", errdefs.ErrInvalidArgument, err)
	}
	return v, err
}

// output returns a stream of the process.
func (p *process) output(stream string) (*stdio.Output, error) {
	out := p.stdout
	switch {
	case stream == "stderr":
		out = p.stderr
	case stream != "stdout":
		return nil, fmt.Errorf("stream %.32q: %w", stream, errdefs.ErrInvalidArgument)
	}
	if out == nil {
		return nil, fmt.Errorf("process has no %s: %w", stream, errdefs.ErrNotFound)
	}
	return out, nil
}

// noReader closes a process's stdout or stderr, because the host reads no more of it.
func (a *Agent) noReader(_ context.Context, r agentv1.NoReader) error {
	_, p, err := a.process(r.Process)
	if err != nil {
		return err
	}
	out, err := p.output(r.Stream)
	if err != nil {
		return err
	}
	out.NoReader()
	return nil
}

// output sends a process's stdout or stderr to the host, from the requested offset on. The host acknowledges the bytes
// that it has stored, and the agent then forgets them.
func (a *Agent) output(ctx context.Context, s *agentv1.Stream) error {
	r, err := body[agentv1.Output](s)
	if err != nil {
		return err
	}
	_, p, err := a.process(r.Process)
	if err != nil {
		return err
	}
	out, err := p.output(r.Stream)
	if err != nil {
		return err
	}
	reader := out.Reader(r.Offset)
	if err := s.Reply(agentv1.Offset{Offset: reader.Offset()}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	acked := make(chan struct{})
	go func() {
		defer close(acked)
		defer cancel()
		for {
			offset, err := agentv1.ReadAck(s)
			if err != nil {
				return // the shim has closed the stream, or the channel has failed
			}
			reader.Ack(offset)
		}
	}()
	buf := make([]byte, agentv1.MaxChunk)
	for {
		n, err := reader.Next(ctx, buf)
		if n > 0 {
			err = agentv1.WriteChunk(s, buf[:n])
		}
		if errors.Is(err, io.EOF) {
			// The last acknowledgements may still arrive; the host closes the stream.
			if err = agentv1.WriteChunk(s, nil); err == nil {
				<-acked
			}
		}
		if err != nil {
			break
		}
		if ctx.Err() != nil {
			break
		}
	}
	s.Close()
	<-acked
	return nil //nolint:nilerr // only the stream's end can be reported now
}

// input writes data from the host to a process's stdin. A later call for the same process takes over from this one.
func (a *Agent) input(_ context.Context, s *agentv1.Stream) error {
	r, err := body[agentv1.Input](s)
	if err != nil {
		return err
	}
	_, p, err := a.process(r.Process)
	if err != nil {
		return err
	}
	if p.stdin == nil {
		return fmt.Errorf("process has no stdin: %w", errdefs.ErrInvalidArgument)
	}
	turn, offset := p.stdin.Acquire()
	if err := s.Reply(agentv1.Offset{Offset: offset}); err != nil {
		return err
	}
	buf := make([]byte, agentv1.MaxChunk)
	for {
		data, err := agentv1.ReadChunk(s, buf)
		if errors.Is(err, io.EOF) {
			_ = p.stdin.SendEOF(turn)
			return nil
		}
		if err != nil {
			if p.stdinOnce {
				_ = p.stdin.SendEOF(turn)
			}
			return nil // the shim has closed the stream, or the channel has failed
		}
		if offset, err = p.stdin.Write(turn, data); err != nil {
			if errors.Is(err, stdio.ErrReplaced) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return fmt.Errorf("stdin of %s: %w", r.Container, err)
		}
		if err := agentv1.WriteAck(s, offset); err != nil {
			return nil //nolint:nilerr // the shim has closed the stream, or the channel has failed
		}
	}
}

// forward joins a stream of the host with a TCP connection to a port of the pod, until one of them ends.
func (a *Agent) forward(_ context.Context, s *agentv1.Stream) error {
	r, err := body[agentv1.Forward](s)
	if err != nil {
		return err
	}
	conn, err := tcp.Dial(a.pod.Hosts(), r.Port)
	if err != nil {
		return fmt.Errorf("connect to port %d of the pod: %w", r.Port, err)
	}
	if err := s.Reply(nil); err != nil {
		conn.Close()
		return err
	}
	agentv1.Join(agentv1.NewChunkConn(s.Conn), conn)
	return nil
}

// datagrams exchanges datagrams of the pod's published UDP ports with the engine, until the stream ends.
func (a *Agent) datagrams(_ context.Context, s *agentv1.Stream) error {
	if err := s.Reply(nil); err != nil {
		return err
	}
	conn := agentv1.NewChunkConn(s.Conn)
	defer conn.Close()
	datagrams.Serve(conn, a.pod.Hosts())
	return nil
}

// view opens a container's root directory, and returns the uid and gid of the container's first process. While that
// process runs, the root includes the container's volumes. Afterwards it lacks them, and owner is zero. The
// caller closes root.
func (a *Agent) view(id string) (root *os.File, owner [2]int, err error) {
	c, p, err := a.process(agentv1.Process{Container: id})
	if err != nil {
		return nil, owner, err
	}
	dir := c.root
	var st unix.Stat_t
	if proc := fmt.Sprintf("/proc/%d", p.pid); !p.hasExited() && unix.Stat(proc, &st) == nil {
		dir, owner = proc+"/root", [2]int{int(st.Uid), int(st.Gid)}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, owner, fmt.Errorf("open the root of container %s: %w", id, err)
	}
	return os.NewFile(uintptr(fd), dir), owner, nil
}

// pack sends files of a container to the host.
func (a *Agent) pack(_ context.Context, s *agentv1.Stream) error {
	r, err := body[agentv1.Pack](s)
	if err != nil {
		return err
	}
	root, _, err := a.view(r.Container)
	if err != nil {
		return err
	}
	defer root.Close()
	return tree.Pack(s, root, r.Path)
}

// unpack writes files of the host into a container. They belong to the user of the container's first process.
func (a *Agent) unpack(_ context.Context, s *agentv1.Stream) error {
	r, err := body[agentv1.Unpack](s)
	if err != nil {
		return err
	}
	root, owner, err := a.view(r.Container)
	if err != nil {
		return err
	}
	defer root.Close()
	return tree.Unpack(s, root, owner, r)
}
