package probe

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestThrough(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for _, test := range []struct {
		name  string
		err   error
		text  string
		asked bool
	}{
		{name: "refused", err: &net.OpError{Op: "x", Err: syscall.ECONNREFUSED}, text: "dial tcp 10.0.2.15:80: connect: connection refused",
			asked: true},
		{name: "timeout", err: context.DeadlineExceeded, text: "deadline exceeded", asked: true},
		{name: "the guest says no", err: errors.New("no route"), text: "no route", asked: true},
		{name: "no shim", err: status.Error(codes.Unavailable, "the shim is gone"), text: "the shim is gone"},
		{name: "not running", err: status.Error(codes.FailedPrecondition, "stopped"), text: "stopped"},
		{name: "no pod", err: status.Error(codes.NotFound, "no pod"), text: "no pod"},
	} {
		dial := Through(func(context.Context, int) (net.Conn, error) { return nil, test.err }, "10.0.2.15")
		_, err := dial(t.Context(), 80)
		if err == nil || !strings.Contains(err.Error(), test.text) || errors.Is(err, ErrNotAsked) == test.asked {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	dial := Through(func(_ context.Context, port int) (net.Conn, error) {
		if port != 80 {
			t.Errorf("dialed port %d", port)
		}
		return near, nil
	}, "10.0.2.15")
	if conn, err := dial(t.Context(), 80); conn != near || err != nil {
		t.Errorf("%v, %v", conn, err)
	}
	if _, err := To("127.0.0.1")(t.Context(), 0); err == nil {
		t.Error("the pod's address was not dialed")
	}
}
