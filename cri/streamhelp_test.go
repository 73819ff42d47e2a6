package cri

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	server "k8s.io/cri-streaming/pkg/streaming/remotecommand"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// streams is what the kubelet's streaming library needs, by the engine's prepared streams.
// The library calls it when a client has come.
type streams struct{ e *engine.Engine }

var _ streaming.Runtime = streams{}

func (s streams) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool,
	resize <-chan server.TerminalSize,
) error {
	to, err := s.e.Exec(ctx, engine.ExecRequest{
		Container: id, Command: cmd, TTY: tty, Stdin: in != nil, Stdout: out != nil, Stderr: errs != nil,
	})
	return carry(ctx, to, err, in, out, errs, resize)
}

func (s streams) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool,
	resize <-chan server.TerminalSize,
) error {
	to, err := s.e.Attach(ctx, engine.AttachRequest{
		Container: id, Stdin: in != nil, Stdout: out != nil, Stderr: errs != nil && !tty,
	})
	return carry(ctx, to, err, in, out, errs, resize)
}

// carry connects a client with a process, until that ends.
func carry(ctx context.Context, to engine.Stream, err error, in io.Reader, out, errs io.Writer, resize <-chan server.TerminalSize) error {
	if err != nil {
		return err
	}
	conn, err := stream.Dial(ctx, to.Socket, to.Token)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sizes := make(chan stream.Size)
	go func() {
		for {
			select {
			case size, ok := <-resize:
				if !ok {
					return
				}
				select {
				case sizes <- stream.Size{Width: size.Width, Height: size.Height}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	code, err := stream.Stdio{Stdin: in, Stdout: out, Stderr: errs, Resize: sizes}.Run(ctx, conn)
	if err == nil && code != 0 {
		err = &engine.ExitError{Code: code}
	}
	return err
}

func (s streams) PortForward(ctx context.Context, pod string, port int32, client io.ReadWriteCloser) error {
	to, err := s.e.PortForward(ctx, pod, int(port))
	if err != nil {
		return err
	}
	conn, err := stream.Dial(ctx, to.Socket, to.Token)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, client)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	_, err = io.Copy(client, conn)
	return err
}

// process plays the process at the far end of an exec or attach. With a terminal it waits
// for a size first. It repeats a line of stdin on stdout, greets on stderr and ends with code.
func process(tty bool, code int) stream.Handler {
	return func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return func(_ context.Context, conn *net.UnixConn) {
			r, w := stream.NewReader(conn), stream.NewWriter(conn)
			var in bytes.Buffer
			size, ended := "", false
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

// echo plays a server in the pod: what it reads to the end it sends back.
func echo(port uint32) stream.Handler {
	return func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return func(_ context.Context, conn *net.UnixConn) {
			in, _ := io.ReadAll(conn)
			fmt.Fprintf(conn, "%d: %s", port, in)
		}, nil
	}
}

// streamed is a pod with one container behind the library's server.
type streamed struct {
	streaming.Server
	url            *url.URL
	pod, container string
	mu             sync.Mutex
	opened         []*shimv1.OpenRequest
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
		return far.Issue(process(!r.GetStderr(), len(r.GetExecId())/32*3)) // 3 of an exec, 0 of an attach
	}
	options := testOptions(t, enginetest.Roots(t))
	enginetest.LoadImage(t, options.Images)
	s := fakeService(t, w, options)
	var err error
	if out.pod, err = s.RunPodSandbox(ctx, podConfig("p"), ""); err != nil {
		t.Fatal(err)
	}
	out.container = startContainer(ctx, t, s, out.pod, containerConfig("c", "sh"), podConfig("p"))
	l, err := podsock.Listen(shim.StreamAddress(s.store.StateDir(out.pod)))
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
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { out.ServeHTTP(w, r) }))
	t.Cleanup(web.Close)
	if out.url, err = url.Parse(web.URL); err != nil {
		t.Fatal(err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = out.url
	if out.Server, err = streaming.NewServer(config, streams{s.e}); err != nil {
		t.Fatal(err)
	}
	return out
}

// prepare is the URL of an exec or an attach.
func (s *streamed) prepare(exec, tty bool) (string, error) {
	if exec {
		res, err := s.GetExec(&runtimeapi.ExecRequest{
			ContainerId: s.container, Cmd: []string{"sh"}, Tty: tty, Stdin: true, Stdout: true, Stderr: !tty,
		})
		return res.GetUrl(), err
	}
	res, err := s.GetAttach(&runtimeapi.AttachRequest{ContainerId: s.container, Tty: tty, Stdin: true, Stdout: true, Stderr: !tty})
	return res.GetUrl(), err
}
