package supervisor

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestSocketIsPrivate: there is no moment in which another user could connect.
func TestSocketIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{Control: private}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
