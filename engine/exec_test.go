package engine_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestExecTimeout checks that the timeout counts from the moment at which the command runs, however long the host
// takes until then.
func TestExecTimeout(t *testing.T) {
	const limit = 50 * time.Millisecond
	w := enginetest.New()
	o := w.In(enginetest.Options(t, enginetest.Roots(t)))
	enginetest.LoadImage(t, o.Images)
	e := enginetest.Open(t, o)
	pod, err := e.StartPod(t.Context(), podRequest("p"))
	if err != nil {
		t.Fatal(err)
	}
	c := startContainer(t.Context(), t, e, pod, "main", "sleep", "1000")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: shim.StreamAddress(e.StateDir(pod)), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	server := stream.NewServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	started := make(chan struct{})
	w.Streams = func(*shimv1.OpenRequest) (string, error) {
		return server.Issue(func(context.Context) (func(context.Context, *net.UnixConn), error) {
			return func(ctx context.Context, conn *net.UnixConn) {
				select {
				case <-started:
					_ = stream.NewWriter(conn).Frame(stream.Exited, stream.EncodeExit(0))
				case <-ctx.Done():
				}
			}, nil
		})
	}

	if _, _, err := output(t.Context(), e, c, []string{"sleep", "1000"}, limit); grpccode.Of(err) != codes.DeadlineExceeded {
		t.Errorf("a command that runs on: %v", err)
	}
	begin := w.Block("StartExec")
	time.AfterFunc(4*limit, func() { close(started); begin() })
	if _, _, err := output(t.Context(), e, c, []string{"true"}, limit); err != nil {
		t.Errorf("a command that was late to start: %v", err)
	}
}
