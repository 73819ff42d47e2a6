package qemu

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestDialPlanted: dial follows no link in place of a VM's socket or directory.
func TestDialPlanted(t *testing.T) {
	root, err := os.MkdirTemp("", "bk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	dir, other := filepath.Join(root, "vm"), filepath.Join(root, "other")
	for _, d := range []string{dir, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", filepath.Join(d, "s"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	for link, target := range map[string]string{
		filepath.Join(dir, "link"): filepath.Join(other, "s"), filepath.Join(root, "linked"): other,
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, dir, socket string
		refused           bool
	}{
		{name: "its own", dir: dir, socket: "s"},
		{name: "a link", dir: dir, socket: "link", refused: true},
		{name: "a linked directory", dir: filepath.Join(root, "linked"), socket: "s", refused: true},
	} {
		v := &vm{record: hypervisor.Record{Dir: test.dir}}
		conn, err := v.dial(t.Context(), test.socket)
		if errors.Is(err, errPlanted) != test.refused || err != nil && !test.refused {
			t.Errorf("%s: %v", test.name, err)
		}
		if conn != nil {
			conn.Close()
		}
	}
}
