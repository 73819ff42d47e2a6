package tap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/alone"
)

func TestMain(m *testing.M) {
	if os.Getenv(asUser) == "" {
		if err := alone.Enter(); err != nil { // for a device of its own
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// asUser is the variable that marks the tests as running as an ordinary user.
const asUser = "BULKHEAD_TEST_USER"

// TestIdleOfUser checks that an ordinary user can create idle taps, if it may open the device.
func TestIdleOfUser(t *testing.T) {
	if err := unix.Mount("tmpfs", filepath.Dir(Node), "tmpfs", 0, "mode=0755,size=16k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Dir(Node), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	run := func() (string, error) {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestIdle$", "-test.count=1")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), asUser+"=1", "TMPDIR=/tmp")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err == nil || !strings.Contains(out, "open "+Node+" in a user namespace") {
		t.Errorf("without the device: got %v: %s", err, out)
	}
	if err := unix.Mknod(Node, unix.S_IFCHR, int(unix.Mkdev(10, 200))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(Node, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	// Each in a namespace of its own: the names do not collide.
	for range 2 {
		f, err := Idle()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := unix.NewIfreq("")
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlIfreq(int(f.Fd()), unix.TUNGETIFF, r); err != nil || r.Name() != "idle" {
			t.Errorf("tap %q, %v", r.Name(), err)
		}
		want := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if got := r.Uint16() & want; got != want {
			t.Errorf("flags %#x", got)
		}
		if n, err := unix.IoctlGetInt(int(f.Fd()), unix.TUNGETVNETHDRSZ); err != nil || n != header {
			t.Errorf("header of %d bytes, %v", n, err)
		}
		if err := Check(f); err != nil {
			t.Errorf("check a tap: %v", err)
		}
	}
}

// TestCheck checks that only a tap as Make creates it is accepted.
func TestCheck(t *testing.T) {
	t.Parallel()
	other, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	unset, err := os.OpenFile(Node, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unset.Close()
	files := map[string]*os.File{"a device": other, "a tap that has no interface": unset}
	for name, flags := range map[string]uint16{
		"a tun": unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR, "no headers": unix.IFF_TAP | unix.IFF_NO_PI,
		"packet information": unix.IFF_TAP | unix.IFF_VNET_HDR, "short headers": unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR,
	} {
		files[name] = device(t, flags)
	}
	for name, f := range files {
		if err := Check(f); !errors.Is(err, ErrNoTap) {
			t.Errorf("%s: got %v, want %v", name, err, ErrNoTap)
		}
	}
}

// device creates a tun device with these flags in a namespace of its own.
func device(t *testing.T, flags uint16) (f *os.File) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocks
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f, err = os.OpenFile(Node, os.O_RDWR, 0)
		}
		if err == nil {
			r, _ := unix.NewIfreq("test0")
			r.SetUint16(flags)
			err = unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, r)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestName(t *testing.T) {
	t.Parallel()
	if _, err := Make("a name that no device can have"); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	if _, err := os.Stat(Node); err != nil {
		t.Error(err)
	}
}
