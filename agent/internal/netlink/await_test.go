package netlink

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestAwaitLinks: look is called again when an interface appears; if none does, the call times out.
func TestAwaitLinks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	looks := 0
	err := AwaitLinks(testdeadline.For(10*time.Second), func() (bool, error) {
		if looks++; looks > 1 {
			return true, nil
		}
		out, err := exec.Command("ip", "link", "add", "eth9", "type", "veth", "peer", "name", "peer9").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return false, nil
	})
	if err != nil || looks != 2 {
		t.Errorf("%d looks, %v", looks, err)
	}
	if err := AwaitLinks(time.Millisecond, func() (bool, error) { return false, nil }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no interface appears: %v", err)
	}
	boom := errors.New("boom")
	if err := AwaitLinks(time.Minute, func() (bool, error) { return false, boom }); !errors.Is(err, boom) {
		t.Errorf("look fails: %v", err)
	}
}
