package qemu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testsock"
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
	var connected []<-chan struct{}
	for _, name := range []string{qmpSocket, monitorSocket} {
		connected = append(connected, testsock.Listen(t, filepath.Join(other, name)))
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
	if len(connected[0])+len(connected[1]) != 0 {
		t.Errorf("another machine was connected to")
	}
}
