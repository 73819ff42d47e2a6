package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestCRI: `bulkhead cri` serves only its user, with the settings of its file and flags, until it is stopped, and
// leaves no socket. It notifies a service manager.
func TestCRI(t *testing.T) {
	w := newWorld(t)
	ctx := testdeadline.Context(t, 30*time.Second)
	socket, file := filepath.Join(w.dir, "c.sock"), filepath.Join(w.dir, "c.toml")
	text := fmt.Sprintf("listen = 'unix:///no/such/socket'\nnetwork = 'user'\nkubelet-root = %q\nlog-dir = [%q]\nlog-format = 'json'\n",
		filepath.Join(w.dir, "k"), filepath.Join(w.dir, "l"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.notify = filepath.Join(w.dir, "n.sock")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	door := w.start(t, "", "cri", "--config", file, "--listen", "unix://"+socket)
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
	notified(ctx, t, manager, "READY=1")
	if _, err := os.Stat(filepath.Join(w.dir, "k")); err != nil {
		t.Errorf("the kubelet's root of the file: %v", err)
	}
	if err := door.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if door.wait(t) != 0 {
		t.Error(door)
	}
	notified(ctx, t, manager, "STOPPING=1")
	for line := range strings.Lines(door.err.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("its log: %s", line)
		}
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// notified reads a notification to the service manager.
func notified(ctx context.Context, t *testing.T, manager *net.UnixConn, want string) {
	t.Helper()
	stop := context.AfterFunc(ctx, func() { manager.Close() })
	defer stop()
	got := make([]byte, 64)
	if n, err := manager.Read(got); err != nil || string(got[:n]) != want {
		t.Errorf("notified %q, %v, want %s", got[:n], err, want)
	}
}
