package server

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share"
)

// TestCloseInherited: an inherited descriptor is closed. The program's own ones and the memory for answers stay open.
func TestCloseInherited(t *testing.T) {
	if os.Getenv("INHERITED_TEST") != "" {
		own, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		var ring error
		if mem, err := mapRing(); mem == nil || err != nil {
			ring = unix.EBADF // and closed with all else
		}
		if want := os.Getenv("INHERITED_TEST"); (ring == nil) != (want == "ring") {
			t.Errorf("the memory for answers is %s: %v", want, ring)
		}
		if err := closeInherited(); err != nil {
			t.Fatal(err)
		}
		for fd, want := range map[int]error{3: nil, 4: ring, 5: unix.EBADF, 6: unix.EBADF, int(own.Fd()): nil} {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != want { //nolint:errorlint // the kernel's own number
				t.Errorf("descriptor %d: %v, want %v", fd, err, want)
			}
		}
		return
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ring, err := share.NewRing()
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	for name, fourth := range map[string]*os.File{"another file": null, "ring": ring} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCloseInherited$", "-test.v")
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), "INHERITED_TEST="+name), []*os.File{null, fourth, null, null}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
