package qemu

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestEndTouchesNobodyElse: a machine's directory that has become a link to
// another machine's is not followed, neither to end that one nor to remove its
// sockets.
func TestEndTouchesNobodyElse(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	pod, other := filepath.Join(base, "pod"), filepath.Join(base, "other", "vm")
	for _, dir := range []string{pod, other} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	connected := make(chan struct{}, 8)
	for _, name := range []string{qmpSocket, monitorSocket} {
		l, err := net.Listen("unix", filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				connected <- struct{}{}
				conn.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-done })
	}
	if err := os.Symlink(other, filepath.Join(pod, "vm")); err != nil {
		t.Fatal(err)
	}
	if err := (Driver{}).End(t.Context(), filepath.Join(pod, "vm")); err == nil {
		t.Error("no machine was ended, and End says so of none")
	}
	removeSockets(filepath.Join(pod, "vm"))
	for _, name := range []string{qmpSocket, monitorSocket} {
		if _, err := os.Lstat(filepath.Join(other, name)); err != nil {
			t.Errorf("another machine's socket: %v", err)
		}
	}
	if len(connected) != 0 {
		t.Errorf("another machine was connected to")
	}
}
