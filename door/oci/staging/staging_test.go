package staging

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/thread"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// inside runs f in a mount namespace.
func inside(t *testing.T, namespace *os.File, f func() error) {
	t.Helper()
	err := thread.Do(func() error {
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = f()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMake(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes mount namespaces here")
	}
	bundle := t.TempDir()
	for name, text := range map[string]string{"root/etc/a": "a", "volume/b": "b", "file": "c", "lower/d": "d"} {
		path := filepath.Join(bundle, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	trees := []convert.Tree{
		{Source: filepath.Join(bundle, "root"), Destination: "/", Dir: true, Recursive: true},
		{
			Source: filepath.Join(bundle, "volume"), Destination: "/volume", Dir: true,
			Attributes: convert.Attributes{Set: unix.MOUNT_ATTR_RDONLY},
		},
		{Source: filepath.Join(bundle, "file"), Destination: "/file"},
	}
	namespace, err := Make(bundle, trees, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	inside(t, namespace, func() error {
		names, err := os.ReadDir("/")
		if err != nil {
			return err
		}
		var all []string
		for _, n := range names {
			all = append(all, n.Name())
		}
		if !slices.Equal(all, []string{"0", "1", "2"}) {
			t.Errorf("the namespace has %q", all)
		}
		for path, want := range map[string]string{"/0/etc/a": "a", "/1/b": "b", "/2": "c"} {
			if text, err := os.ReadFile(path); err != nil || string(text) != want {
				t.Errorf("%s: %q, %v", path, text, err)
			}
		}
		if err := os.WriteFile("/1/new", nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("a write to the read-only tree: %v", err)
		}
		return os.WriteFile("/0/new", nil, 0o600)
	})
	if _, err := os.Stat(filepath.Join(bundle, "root/new")); err != nil {
		t.Errorf("a write to the root: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), bundle) {
		t.Errorf("the caller has a mount in the bundle, or %v", err)
	}
}

func TestMissingSource(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes mount namespaces here")
	}
	_, err := Make(t.TempDir(), []convert.Tree{{Source: "/absent", Destination: "/there", Dir: true}}, nil)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/there") {
		t.Error(err)
	}
}

// TestMountPoints creates missing mount points in a root, and nothing outside of it.
func TestMountPoints(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "root")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "etc"), 0o755), os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("own"), 0o600),
		os.Symlink("/run/resolve/stub", filepath.Join(root, "etc/resolv.conf")), os.Symlink("../../..", filepath.Join(root, "up")),
		os.Symlink(top, filepath.Join(root, "absolute")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range []struct {
		point convert.MountPoint
		made  string // below root; a directory ends with /
	}{
		{convert.MountPoint{Path: "/a/b", Dir: true}, "a/b/"},
		{convert.MountPoint{Path: "/a/c/file"}, "a/c/file"},
		{convert.MountPoint{Path: "/etc", Dir: true}, "etc/"},
		{convert.MountPoint{Path: "/etc/hosts"}, "etc/hosts"},
		{convert.MountPoint{Path: "/etc/resolv.conf"}, "run/resolve/stub"},
		{convert.MountPoint{Path: "/up/out", Dir: true}, "out/"},
		{convert.MountPoint{Path: "/absolute/file"}, filepath.Join(top, "file")[1:]},
	} {
		if err := ensure(root, one.point); err != nil {
			t.Errorf("%+v: %v", one.point, err)
		}
		name, dir := strings.CutSuffix(one.made, "/")
		if info, err := os.Lstat(filepath.Join(root, name)); err != nil || info.IsDir() != dir {
			t.Errorf("%+v: %v, %v", one.point, info, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(root, "etc/hosts")); err != nil || string(text) != "own" {
		t.Errorf("the existing file: %q, %v", text, err)
	}
	if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 {
		t.Errorf("outside the root: %v, %v", entries, err)
	}
	if err := ensure(root, convert.MountPoint{Path: "/etc/hosts/below"}); err == nil {
		t.Error("a mount point below a file was created")
	}
}
