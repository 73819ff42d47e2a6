package spec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestPlaceIn(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"etc", "var", "real/sub"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"data": "/mnt/data", "var/lock": "../run/lock", "out": "../../../../srv", "up": "/../../etc/../gone", "chain": "data/more",
		"good": "real", "loop": "loop2", "loop2": "/loop", "etc/resolv.conf": "../run/resolve/resolv.conf", "host": "/proc/self/root/x",
		"dots": "./real/./../gone", "self": "self/x",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		"/data": "/mnt/data", "/data/sub": "/mnt/data/sub", "/var/lock/x": "/run/lock/x", "/out": "/srv", "/up/x": "/gone/x",
		"/chain/x": "/mnt/data/more/x", "/etc/resolv.conf": "/run/resolve/resolv.conf", "/host": "/proc/self/root/x", "/dots": "/gone",
		"/good/new": "/real/new",
		// All parts exist, or the path has no links: crun can handle it.
		"/good": "/good", "/good/sub": "/good/sub", "/new/dir": "/new/dir", "/": "/", "/real": "/real", "/real/../new": "/real/../new",
	} {
		if got, err := PlaceIn(root, at); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", at, got, err, want)
		}
	}
	for _, at := range []string{"/loop/x", "/loop", "/self"} {
		if got, err := PlaceIn(root, at); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %s, %v", at, got, err)
		}
	}
	if got, err := PlaceIn(root, "/file/x"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("below a file: %s, %v", got, err)
	}
}
