package shim_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/ttrpc"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// impostor is what a machine that has been taken over may serve in place of
// its shim.
type impostor struct {
	shimv1.ExtensionService
	answer *shimv1.OpenResponse
}

func (i impostor) Open(context.Context, *shimv1.OpenRequest) (*shimv1.OpenResponse, error) {
	return i.answer, nil
}

// victim is a socket of somebody else's; connected tells of every connection.
func victim(t *testing.T, path string) (connected <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	got, done := make(chan struct{}, 8), make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			got <- struct{}{}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return got
}

// TestImpostorOpensNothing: where a stream is, and what is written there, is
// not the shim's to say.
func TestImpostorOpensNothing(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	other := filepath.Join(base, "victim.sock")
	connected := victim(t, other)
	token := strings.Repeat("0f", 16)
	for name, answer := range map[string]*shimv1.OpenResponse{
		"address": {Address: other, Token: token},
		"token":   {Address: other, Token: "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n"},
		"upper":   {Address: other, Token: strings.ToUpper(token)},
	} {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", filepath.Join(dir, layout.API))
		if err != nil {
			t.Fatal(err)
		}
		srv, err := ttrpc.NewServer()
		if err != nil {
			t.Fatal(err)
		}
		shimv1.RegisterExtensionService(srv, impostor{answer: answer})
		served := make(chan error, 1)
		go func() { served <- srv.Serve(t.Context(), l) }()
		if err := os.Symlink(other, filepath.Join(dir, layout.Stream)); err != nil {
			t.Fatal(err)
		}
		c, err := shim.Connect(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := c.OpenStream(t.Context(), &shimv1.OpenRequest{})
		if err == nil {
			conn.Close()
			t.Errorf("%s: a stream was opened", name)
		}
		if name == "address" && !errors.Is(err, podsock.ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
		srv.Close()
		<-served
	}
	select {
	case <-connected:
		t.Error("somebody else's socket was connected to")
	default:
	}
}

// TestLinkIsNoShim: a link in a pod's directory leads to no shim.
func TestLinkIsNoShim(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	connected := victim(t, filepath.Join(base, "victim.sock"))
	dir := filepath.Join(base, "pod")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../victim.sock", filepath.Join(dir, layout.API)); err != nil {
		t.Fatal(err)
	}
	if _, err := shim.Connect(t.Context(), dir); !errors.Is(err, podsock.ErrForeign) || errors.Is(err, shim.ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	select {
	case <-connected:
		t.Error("it was connected to")
	default:
	}
}
