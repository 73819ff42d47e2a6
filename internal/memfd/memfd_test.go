package memfd

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSealUsedPage: a page in a pipe delays the seal. If it stays there, Seal gives up.
func TestSealUsedPage(t *testing.T) {
	f, err := Create("test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var at int64
	if _, err := unix.Splice(int(f.Fd()), &at, int(w.Fd()), nil, os.Getpagesize(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, Constant); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("one try to seal a page that a pipe holds: %v", err)
	}
	read := make(chan error, 1)
	time.AfterFunc(400*time.Millisecond, func() {
		_, err := r.Read(make([]byte, os.Getpagesize()))
		read <- err
	})
	if err := Seal(f, Constant); err != nil {
		t.Error(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	if _, err := f.WriteAt([]byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("a write to sealed memory: %v", err)
	}
	if err := f.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("another size of sealed memory: %v", err)
	}
}

// TestSealOnce: Seal returns an error at once for a file with sealed seals.
func TestSealOnce(t *testing.T) {
	f, err := Create("test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Seal(f, Fixed); err != nil {
		t.Fatal(err)
	}
	if err := Seal(f, Constant); !errors.Is(err, unix.EPERM) {
		t.Errorf("a second seal: %v", err)
	}
}

func TestProgram(t *testing.T) {
	f, err := Program("test", "/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Mode().Perm() != 0o511 {
		t.Errorf("%v, %v", info, err)
	}
	want, err := os.Stat("/bin/sh")
	if err != nil || info.Size() != want.Size() {
		t.Errorf("size %d, want %d, %v", info.Size(), want.Size(), err)
	}
	if _, err := f.WriteAt([]byte{0}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write to a sealed program: %v", err)
	}
	if _, err := Program("test", "/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program: %v", err)
	}
}
