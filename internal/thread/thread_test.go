package thread

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDo(t *testing.T) {
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("failed")
	for range 100 {
		err := Do(func() error {
			if unix.Gettid() == os.Getpid() {
				t.Error("f runs on the first thread")
			}
			return errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chdir("/"), failure)
		})
		if !errors.Is(err, failure) {
			t.Errorf("the error of f is %v", err)
		}
		if got, err := unix.Getwd(); got != home || err != nil {
			t.Fatalf("another thread is in %s, %v", got, err)
		}
	}
}
