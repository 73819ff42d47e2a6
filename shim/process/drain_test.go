package process

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/ttrpc"
)

// lastCall answers ShutdownSandbox after it has announced the server's end.
type lastCall struct {
	sandboxv1.TTRPCSandboxService
	end chan struct{}
}

func (l lastCall) ShutdownSandbox(context.Context, *sandboxv1.ShutdownSandboxRequest) (*sandboxv1.ShutdownSandboxResponse, error) {
	l.end <- struct{}{}
	return &sandboxv1.ShutdownSandboxResponse{}, nil
}

// TestAnswersBeforeTheEnd: the answer to the call that ends a server always arrives.
func TestAnswersBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for range 300 {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server, err := ttrpc.NewServer()
		if err != nil {
			t.Fatal(err)
		}
		service := lastCall{end: make(chan struct{})}
		sandboxv1.RegisterTTRPCSandboxService(server, service)
		var under calls
		served := make(chan error, 1)
		go func() { served <- server.Serve(context.Background(), under.listen(l)) }()
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		client := ttrpc.NewClient(conn)
		go func() {
			_, err := sandboxv1.NewTTRPCSandboxClient(client).ShutdownSandbox(t.Context(), &sandboxv1.ShutdownSandboxRequest{})
			client.Close()
			answered <- err
		}()
		<-service.end
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		under.wait(ctx)
		if ctx.Err() != nil {
			t.Error("the answer or the end did not arrive")
		}
		cancel()
		server.Close()
		if err := <-answered; err != nil {
			t.Errorf("the last answer: %v", err)
		}
		if err := <-served; !errors.Is(err, ttrpc.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}
}

// TestCountsCalls: a closed connection ends its calls, and frames may be cut anywhere.
func TestCountsCalls(t *testing.T) {
	t.Parallel()
	var under calls
	near, far := net.Pipe()
	c := &countingConn{Conn: near, calls: &under, closed: make(chan struct{})}
	frame := func(kind, flags byte, n int) []byte {
		return append([]byte{0, 0, 0, byte(n), 0, 0, 0, 1, kind, flags}, make([]byte, n)...)
	}
	go func() {
		for _, b := range append(frame(frameRequest, 0, 3), append(frame(frameData, 1, 0), frame(frameRequest, 0, 0)...)...) {
			far.Write([]byte{b})
		}
		buf := make([]byte, 100)
		for {
			if _, err := far.Read(buf); err != nil {
				return
			}
		}
	}()
	for range 13 + 10 + 10 {
		if _, err := c.Read(make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	if under.open != 2 {
		t.Errorf("%d calls, not 2", under.open)
	}
	for _, row := range []struct {
		kind, flags byte
		left        int
	}{
		{frameData, 0, 2}, // more frames follow
		{frameRequest, flagClosed, 2},
		{frameData, flagClosed, 1},
	} {
		c.Write(frame(row.kind, row.flags, 2))
		if under.open != row.left {
			t.Errorf("%d calls after %+v", under.open, row)
		}
	}
	c.count(1)
	c.Write(frame(frameResponse, 0, 2))
	if under.open != 1 {
		t.Errorf("%d calls after an answer, not 1", under.open)
	}
	c.Close()
	c.Close()
	c.count(1) // by a read that has just returned
	under.wait(t.Context())
	if under.open != 0 {
		t.Errorf("%d calls of a closed connection", under.open)
	}
}
