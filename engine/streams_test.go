package engine

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// TestStreamRequests checks the requests for streams and their bounds.
func TestStreamRequests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		do     func(e *Engine, c *container) (Stream, error)
		noShim bool
		code   codes.Code
		want   shimv1.OpenRequest_Kind
		opens  bool
	}{
		{name: "port 0", do: portForward(0), code: codes.InvalidArgument},
		{name: "port 1", do: portForward(1), opens: true, want: shimv1.OpenRequest_PORT_FORWARD},
		{name: "the last port", do: portForward(65535), opens: true, want: shimv1.OpenRequest_PORT_FORWARD},
		{name: "one too many", do: portForward(65536), code: codes.InvalidArgument},
		{name: "port without a shim", do: portForward(1), noShim: true, code: codes.FailedPrecondition},
		{name: "console", do: console, opens: true, want: shimv1.OpenRequest_CONSOLE},
		{name: "console without a shim", do: console, noShim: true, code: codes.FailedPrecondition},
		{name: "copy in", do: copyOf(true), opens: true, want: shimv1.OpenRequest_COPY_IN},
		{name: "copy out", do: copyOf(false), opens: true, want: shimv1.OpenRequest_COPY_OUT},
		{name: "copy without a shim", do: copyOf(false), noShim: true, code: codes.FailedPrecondition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opens := false
			s := &scripted{opened: func(r *shimv1.OpenRequest) {
				if opens = true; r.Kind != tc.want {
					t.Errorf("opens %v", r.Kind)
				}
			}}
			c := scriptedPod(t, s, ContainerRunning)
			if tc.noShim {
				c.pod.conn = nil
			}
			at, err := tc.do(c.pod.e, c)
			if codeOf(err) != tc.code || opens != tc.opens || (at.Token != "") != tc.opens {
				t.Errorf("%+v, %v", at, err)
			}
		})
	}
	e := bareEngine(t)
	for port, want := range map[int]codes.Code{
		0: codes.InvalidArgument, 1: codes.NotFound, 65535: codes.NotFound, 65536: codes.InvalidArgument,
	} {
		if _, err := e.DialPort(t.Context(), "gone", port); codeOf(err) != want {
			t.Errorf("dial %d: %v", port, err)
		}
	}
}

func portForward(port int) func(*Engine, *container) (Stream, error) {
	return func(e *Engine, c *container) (Stream, error) {
		return e.PortForward(context.Background(), c.pod.id, port)
	}
}

func copyOf(in bool) func(*Engine, *container) (Stream, error) {
	return func(e *Engine, c *container) (Stream, error) {
		return e.Copy(context.Background(), CopyRequest{ContainerID: c.ID, In: in})
	}
}

func console(e *Engine, c *container) (Stream, error) {
	return e.Console(context.Background(), c.pod.id)
}
