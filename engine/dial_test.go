package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestDialPort checks that errors distinguish a closed port from a dead shim, which refuses connections as well.
func TestDialPort(t *testing.T) {
	w := enginetest.New()
	e := enginetest.Open(t, w.In(enginetest.Options(t, enginetest.Roots(t))))
	pod, err := e.StartPod(t.Context(), podRequest("p"))
	if err != nil {
		t.Fatal(err)
	}
	address := shim.StreamAddress(e.StateDir(pod))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	server := stream.NewServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	w.Streams = func(r *shimv1.OpenRequest) (string, error) {
		if r.GetKind() != shimv1.OpenRequest_PORT_FORWARD {
			t.Errorf("opened %v", r)
		}
		return server.Issue(func(ctx context.Context) (func(context.Context, *net.UnixConn), error) {
			switch r.GetPort() {
			case 1:
				return nil, fmt.Errorf("connect: %w", syscall.ECONNREFUSED)
			case 2:
				return nil, errors.New("no route")
			case 3:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return func(_ context.Context, conn *net.UnixConn) { fmt.Fprintf(conn, "port %d", r.GetPort()) }, nil
		})
	}
	for _, test := range []struct {
		name    string
		port    int
		refused bool // no listener
		tried   bool
		code    codes.Code
	}{
		{"nothing listens", 1, true, true, codes.Unknown},
		{"in vain", 2, false, true, codes.Unknown},
		{"no answer", 3, false, false, codes.DeadlineExceeded},
		{"no port", 0, false, false, codes.InvalidArgument},
	} {
		ctx, cancel := t.Context(), func() {}
		if test.code == codes.DeadlineExceeded {
			ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
		}
		_, err := e.DialPort(ctx, pod, test.port)
		cancel()
		if grpccode.Of(err) != test.code || errors.Is(err, syscall.ECONNREFUSED) != test.refused ||
			errors.Is(err, stream.ErrRefused) != test.tried {
			t.Errorf("%s: code %v, %v", test.name, grpccode.Of(err), err)
		}
	}
	w.Once("Open", ttrpc.ErrClosed) // the shim dies, and another one takes over
	conn, err := e.DialPort(t.Context(), pod, 80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if text, err := io.ReadAll(conn); string(text) != "port 80" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}

	// The lack of a shim during the call must not look like a silent pod.
	next := w.Block("Adopt")
	w.Shim(e.StateDir(pod)).Die()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it notices the shim's end first
	_, err = e.DialPort(ctx, pod, 80)
	cancel()
	if grpccode.Of(err) != codes.Unavailable {
		t.Errorf("between two shims: code %v, %v", grpccode.Of(err), err)
	}
	next()
	if later, err := e.DialPort(t.Context(), pod, 80); err != nil {
		t.Errorf("by the next shim: %v", err)
	} else {
		later.Close()
	}

	server.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	w.Streams = func(*shimv1.OpenRequest) (string, error) { return "0123456789abcdef0123456789abcdef", nil }
	_, err = e.DialPort(t.Context(), pod, 80)
	if grpccode.Of(err) != codes.Unavailable || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a server: code %v, %v", grpccode.Of(err), err)
	}
	if err := e.RemovePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err = e.DialPort(t.Context(), pod, 80); grpccode.Of(err) != codes.NotFound {
		t.Errorf("removed pod: code %v, %v", grpccode.Of(err), err)
	}
}
