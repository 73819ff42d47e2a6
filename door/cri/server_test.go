package cri

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
)

// TestEndBeforeServing: a door that must stop before its first call returns no error and closes its socket.
func TestEndBeforeServing(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	srv := grpc.NewServer()
	if err := serve(ctx, srv, nil, l, func() { cancel(); srv.Stop() }); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket: %v", err)
	}
}
