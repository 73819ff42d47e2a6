package remote_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	run "github.com/bulkhead-project/bulkhead/door/run/client"
)

// TestStranger: only the socket's user can connect. If another user connects anyway, because of a wrong mode, the
// service refuses it.
func TestStranger(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	_, o := fake(t)
	p := serve(t, o)
	path := run.EngineSocket(o.Roots)
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if _, err := dialAs(t, 12345, path); !errors.Is(err, unix.EACCES) {
		t.Errorf("dial: %v", err)
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(filepath.Dir(o.Roots.State)); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	conn, err := dialAs(t, 12345, path)
	if err != nil {
		t.Fatal(err)
	}
	rpc := ttrpc.NewClient(conn)
	defer rpc.Close()
	_, err = enginev1.NewEngineClient(rpc).Start(t.Context(), &enginev1.StartRequest{Door: "oci", Key: "k"})
	if !errors.Is(err, ttrpc.ErrClosed) {
		t.Errorf("a stranger's start: %v", err)
	}
	if pods := p.e.Pods(); len(pods) != 0 {
		t.Errorf("a stranger has pods: %v", pods)
	}
}

// dialAs connects on a thread with another user ID.
func dialAs(t *testing.T, uid uintptr, path string) (conn net.Conn, err error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // permanently: the thread ends with this goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- errno
			return
		}
		var err error
		conn, err = net.Dial("unix", path)
		done <- err
	}()
	return conn, <-done
}
