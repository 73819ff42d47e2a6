package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// TestCRI: `bulkhead cri` is served to its user alone until it is ended, and leaves no
// socket.
func TestCRI(t *testing.T) {
	w := newWorld(t)
	ctx := testdeadline.Context(t, 30*time.Second)
	socket := filepath.Join(w.dir, "c.sock")
	door := w.start(t, "", "cri", "--listen", "unix://"+socket, "--network", "user",
		"--kubelet-root", filepath.Join(w.dir, "k"), "--log-dir", filepath.Join(w.dir, "l"))
	conn, err := grpc.NewClient("passthrough:///cri", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	version, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
	if err != nil || version.GetRuntimeName() != "bulkhead" {
		t.Fatalf("version: %v, %v", version, err)
	}
	if info, err := os.Lstat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	if err := door.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if door.wait(t) != 0 {
		t.Error(door)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}
