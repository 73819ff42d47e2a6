package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// command simulates the process behind an exec or attach. With a terminal it starts with size, or waits for a size if
// that is empty. It copies a line from stdin to stdout, writes to stderr and exits with code.
func command(tty bool, size string, code int) stream.Handler {
	return func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return func(_ context.Context, conn *net.UnixConn) {
			r, w := stream.NewReader(conn), stream.NewWriter(conn)
			var in bytes.Buffer
			size, ended := size, false
			for !ended || tty && size == "" {
				ch, p, err := r.Next()
				if err != nil {
					return
				}
				switch ch {
				case stream.Stdin:
					in.Write(p)
					ended = bytes.HasSuffix(in.Bytes(), []byte("\n"))
				case stream.Resize:
					s, _ := stream.DecodeSize(p)
					size = fmt.Sprintf("%dx%d ", s.Width, s.Height)
				}
			}
			_ = w.Frame(stream.Stdout, []byte(size+in.String()))
			if !tty {
				_ = w.Frame(stream.Stderr, []byte("hello"))
			}
			_ = w.Frame(stream.Exited, stream.EncodeExit(code))
		}, nil
	}
}

// echo simulates a server in the pod that sends everything back after the end of its input.
func echo(port uint32) stream.Handler {
	return func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return func(_ context.Context, conn *net.UnixConn) {
			in, _ := io.ReadAll(conn)
			fmt.Fprintf(conn, "%d: %s", port, in)
		}, nil
	}
}

// streamed is a pod with one container behind the door.
type streamed struct {
	critest.Client
	pod, container string
	mu             sync.Mutex
	opened         []*shimv1.OpenRequest
	size           string // of the terminal in the last exec request
}

func (s *streamed) requests() []*shimv1.OpenRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func serveStreams(ctx context.Context, t *testing.T) *streamed {
	t.Helper()
	out, far := &streamed{}, stream.NewServer()
	w := enginetest.New()
	w.Streams = func(r *shimv1.OpenRequest) (string, error) {
		out.mu.Lock()
		defer out.mu.Unlock()
		out.opened = append(out.opened, r)
		if r.GetKind() == shimv1.OpenRequest_PORT_FORWARD {
			return far.Issue(echo(r.GetPort()))
		}
		if r.GetExecId() == "" {
			return far.Issue(command(!r.GetStderr(), "", 0))
		}
		return far.Issue(command(!r.GetStderr(), out.size, 3))
	}
	w.Exec = func(r *taskv3.ExecProcessRequest) {
		var p specs.Process
		if err := json.Unmarshal(r.Spec.Value, &p); err != nil {
			t.Errorf("the process of an exec: %v", err)
		}
		out.mu.Lock()
		defer out.mu.Unlock()
		if out.size = ""; p.ConsoleSize != nil {
			out.size = fmt.Sprintf("%dx%d ", p.ConsoleSize.Width, p.ConsoleSize.Height)
		}
	}
	o := fakeOptions(t, w)
	out.Client = serveDoor(t, o)
	out.pod = out.Run(ctx, t, critest.Pod("p"))
	out.container = out.Start(ctx, t, out.pod, critest.Container("c", "sh"), critest.Pod("p"))
	l, err := podsock.Listen(shim.StreamAddress(filepath.Join(o.Roots.Instance(Instance), out.pod)))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- far.Serve(l) }()
	t.Cleanup(func() {
		far.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return out
}

// prepare returns the URL of an exec or attach.
func (s *streamed) prepare(ctx context.Context, exec, tty bool) (string, error) {
	if exec {
		res, err := s.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: s.container, Cmd: []string{"sh"}, Tty: tty, Stdin: true, Stdout: true, Stderr: !tty,
		})
		return res.GetUrl(), err
	}
	res, err := s.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: s.container, Tty: tty, Stdin: true, Stdout: true, Stderr: !tty})
	return res.GetUrl(), err
}
