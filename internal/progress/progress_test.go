package progress

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// create returns a new file, and a second descriptor of it for another process.
func create(t *testing.T) (first, second *os.File) {
	t.Helper()
	f, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return f, os.NewFile(uintptr(fd), "again")
}

func open(t *testing.T, f *os.File) *Record {
	t.Helper()
	r, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestNextProcessContinues(t *testing.T) {
	mine, theirs := create(t)
	r := open(t, mine)
	if err := errors.Join(r.SetOutput(Stdout, 5), r.SetOutput(Stderr, 1<<40), r.AddInput([]byte("in"))); err != nil {
		t.Fatal(err)
	}
	r.Close()
	r = open(t, theirs)
	for s, want := range map[Stream]int64{Stdout: 5, Stderr: 1 << 40} {
		if got, err := r.Output(s); got != want || err != nil {
			t.Errorf("Output(%d): got %d, %v, want %d", s, got, err, want)
		}
	}
	if at, last, err := r.Input(); at != 2 || string(last) != "in" || err != nil {
		t.Errorf("Input: got %d, %q, %v", at, last, err)
	}
}

// TestInput: the file keeps the last bytes of stdin, wherever they lie in the ring.
func TestInput(t *testing.T) {
	mine, theirs := create(t)
	r := open(t, mine)
	var all []byte
	for i := range 40 {
		piece := bytes.Repeat([]byte{byte(i)}, 1000*i+1)
		if err := r.AddInput(piece); err != nil {
			t.Fatal(err)
		}
		all = append(all, piece...)
		for name, r := range map[string]*Record{"the same": r, "the next": {f: theirs, input: int64(len(all))}} {
			at, last, err := r.Input()
			if want := all[max(0, len(all)-Ring):]; at != int64(len(all)) || !bytes.Equal(last, want) || err != nil {
				t.Errorf("%s, after %d bytes: got offset %d, %d bytes, %v", name, len(all), at, len(last), err)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	plain, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Truncate(fileSize); err != nil {
		t.Fatal(err)
	}
	unsealed, err := memfd.Create("unsealed")
	if err != nil {
		t.Fatal(err)
	}
	short, err := memfd.Create("short")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unsealed.Truncate(fileSize), memfd.Seal(short, memfd.Fixed)); err != nil {
		t.Fatal(err)
	}
	good, _ := create(t)
	readOnly, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", good.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*os.File{
		"a file": plain, "memory that can shrink": unsealed, "memory that is too short": short,
		"memory that cannot be written": readOnly, "a pipe": pipe,
	} {
		if _, err := Open(f); !errors.Is(err, ErrInvalid) {
			t.Errorf("Open of %s: got %v, want ErrInvalid", name, err)
		}
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Open of %s left it open: %v", name, err)
		}
	}
}

// TestHostileNumbers: no number in the file is negative, whatever a writer has stored.
func TestHostileNumbers(t *testing.T) {
	mine, theirs := create(t)
	if _, err := mine.WriteAt(bytes.Repeat([]byte{0xff}, 64), 0); err != nil {
		t.Fatal(err)
	}
	r := open(t, theirs)
	if at, err := r.Output(Stderr); at < 0 || err != nil {
		t.Errorf("Output: got %d, %v", at, err)
	}
	if at, last, err := r.Input(); at < 0 || len(last) != Ring || err != nil {
		t.Errorf("Input: got %d, %d bytes, %v", at, len(last), err)
	}
}
