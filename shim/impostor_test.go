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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/test/testsock"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// impostor is a service of a compromised VM in place of its shim.
type impostor struct {
	shimv1.ExtensionService
	answer *shimv1.OpenResponse
	err    error
}

func (i impostor) Open(context.Context, *shimv1.OpenRequest) (*shimv1.OpenResponse, error) {
	return i.answer, i.err
}

// serve serves an impostor in place of the shim of dir, until the test's end.
func (i impostor) serve(t *testing.T, dir string) *shim.Client {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, layout.API))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	shimv1.RegisterExtensionService(srv, i)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.WithoutCancel(t.Context()), l) }()
	t.Cleanup(func() { srv.Close(); <-served })
	c, err := shim.Connect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestImpostorsWords: a shim's error messages are bounded, because they are logged and become events.
func TestImpostorsWords(t *testing.T) {
	t.Parallel()
	c := impostor{err: status.Error(codes.NotFound, strings.Repeat("lie", 1<<20))}.serve(t, t.TempDir())
	_, err := c.Extension.Open(t.Context(), &shimv1.OpenRequest{})
	if status.Code(err) != codes.NotFound || len(err.Error()) > 5<<10 {
		t.Errorf("%d bytes of the code %v", len(err.Error()), status.Code(err))
	}
}

// TestImpostorOpensNothing: a shim can choose neither the address of a stream nor what is written there.
func TestImpostorOpensNothing(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	other := filepath.Join(base, "victim.sock")
	connected := testsock.Listen(t, other)
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
		if err := os.Symlink(other, filepath.Join(dir, layout.Stream)); err != nil {
			t.Fatal(err)
		}
		c := impostor{answer: answer}.serve(t, dir)
		conn, err := openStream(t.Context(), c, &shimv1.OpenRequest{})
		if err == nil {
			conn.Close()
			t.Errorf("%s: a stream was opened", name)
		}
		if name == "address" && !errors.Is(err, podsock.ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case <-connected:
		t.Error("the client connected to a foreign socket")
	default:
	}
}

// TestLinkIsNoShim: the client follows no link in a pod's directory.
func TestLinkIsNoShim(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	connected := testsock.Listen(t, filepath.Join(base, "victim.sock"))
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
		t.Error("the client connected to the link's target")
	default:
	}
}
