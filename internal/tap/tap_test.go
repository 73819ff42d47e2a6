package tap

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

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
	}
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
