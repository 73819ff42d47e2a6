package staging

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/thread"
	"github.com/bulkhead-project/bulkhead/internal/userns"
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

// newNamespace returns a copy of the test's mount namespace.
func newNamespace(t *testing.T) (namespace *os.File) {
	t.Helper()
	err := thread.Do(func() (err error) {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return err
		}
		namespace, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	return namespace
}

func TestFill(t *testing.T) {
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
	namespace := newNamespace(t)
	if err := Fill(namespace, bundle, trees, nil); err != nil {
		t.Fatal(err)
	}
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
	err := Fill(newNamespace(t), t.TempDir(), []convert.Tree{{Source: "/absent", Destination: "/there", Dir: true}}, nil)
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

// TestUserNamespace checks that a process in a user namespace has the trees with its own users, and keeps no other mount.
func TestUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root maps users")
	}
	bundle := t.TempDir() // with parents that only root may enter
	if err := os.Mkdir(filepath.Join(bundle, "root"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(bundle, "root"), 100000, 200000); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "echo ready; read x; cd /0 && echo new >made && for f in /0/* /bin/*; do echo $f; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	err := userns.Mappings{UIDs: "0 100000 1000", GIDs: "0 200000 1000"}.Enter(cmd.SysProcAttr)
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer in.Close()
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "ready\n" || err != nil {
		t.Fatalf("the process: %q, %v", line, err)
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	trees := []convert.Tree{{Source: filepath.Join(bundle, "root"), Destination: "/", Dir: true, Recursive: true}}
	if err := Fill(namespace, bundle, trees, nil); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if text, err := io.ReadAll(said); err != nil || string(text) != "/0/made\n/bin/*\n" {
		t.Errorf("the process sees %q, %v", text, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(bundle, "root/made"), &st); err != nil || st.Uid != 100000 || st.Gid != 200000 {
		t.Errorf("its file: %d:%d, %v", st.Uid, st.Gid, err)
	}
}
