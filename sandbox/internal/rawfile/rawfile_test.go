package rawfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
)

// kinds are the kinds of files that two processes can talk through, each blocking and not.
var kinds = map[string]func(t *testing.T) (r, w int){
	"pipe": func(t *testing.T) (r, w int) {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		return p[0], p[1]
	},
	"fifo": func(t *testing.T) (r, w int) {
		path := filepath.Join(t.TempDir(), "fifo")
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SetNonblock(r, false); err != nil {
			t.Fatal(err)
		}
		if w, err = unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		return r, w
	},
	"socket": func(t *testing.T) (r, w int) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p[0], p[1]
	},
	"terminal": func(t *testing.T) (r, w int) {
		master, slave := testpty.Open(t)
		testpty.Raw(t, slave)
		r, w = dup(t, master), dup(t, slave)
		master.Close()
		slave.Close()
		return r, w
	},
}

func dup(t *testing.T, f *os.File) int {
	t.Helper()
	fd, err := duplicate(f)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// each runs a test for every kind of file.
func each(t *testing.T, do func(t *testing.T, r, w *os.File)) {
	for name, open := range kinds {
		for _, nonblock := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", not blocking"}[nonblock], func(t *testing.T) {
				t.Parallel()
				r, w := open(t)
				if err := errors.Join(unix.SetNonblock(r, nonblock), unix.SetNonblock(w, nonblock)); err != nil {
					t.Fatal(err)
				}
				files := []*os.File{os.NewFile(uintptr(r), "r"), os.NewFile(uintptr(w), "w")}
				flags := func() (list []int) {
					for _, f := range files {
						list = append(list, flagsOf(t, f)&unix.O_NONBLOCK)
					}
					return list
				}
				before := flags()
				do(t, files[0], files[1])
				if after := flags(); before[0] != after[0] || before[1] != after[1] {
					t.Errorf("flags %x became %x", before, after)
				}
				for _, f := range files {
					f.Close()
				}
			})
		}
	}
}

func flagsOf(t *testing.T, f *os.File) (flags int) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) { flags, _ = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	if err != nil {
		t.Fatal(err)
	}
	return flags
}

func use(t *testing.T, f *os.File, d Direction) *File {
	t.Helper()
	file, err := New(f, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(file.Close)
	return file
}

// TestCarry passes more bytes than any buffer of the kernel holds, to a reader that is sometimes slower.
func TestCarry(t *testing.T) {
	each(t, func(t *testing.T, r, w *os.File) {
		from, to := use(t, r, ForRead), use(t, w, ForWrite)
		want := bytes.Repeat([]byte("0123456789abcde\n"), 20000)
		wrote := make(chan error, 1)
		go func() {
			for rest := want; len(rest) > 0; {
				n, err := to.Write(rest)
				if err != nil {
					wrote <- err
					return
				}
				rest = rest[n:]
			}
			wrote <- nil
		}()
		var got []byte
		buf := make([]byte, 30000)
		for len(got) < len(want) {
			n, err := from.Read(buf)
			if err != nil {
				t.Fatalf("after %d bytes: %v", len(got), err)
			}
			got = append(got, buf[:n]...)
		}
		if err := <-wrote; err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d are right, %v", len(got), len(want), err)
		}
	})
}

// TestInterrupt ends a read without bytes and a write without room.
func TestInterrupt(t *testing.T) {
	each(t, func(t *testing.T, r, w *os.File) {
		from := use(t, r, ForRead)
		read := make(chan error, 1)
		go func() {
			_, err := from.Read(make([]byte, 1))
			read <- err
		}()
		time.AfterFunc(10*time.Millisecond, from.Interrupt)
		if err := <-read; !errors.Is(err, ErrInterrupted) {
			t.Errorf("Read: got %v", err)
		}
		if _, err := from.Read(make([]byte, 1)); !errors.Is(err, ErrInterrupted) {
			t.Errorf("Read after Interrupt: got %v", err)
		}
		to := use(t, w, ForWrite)
		written := make(chan error, 1)
		var err error
		go func() {
			for err == nil {
				_, err = to.Write(make([]byte, 256)) // a terminal that has room for this takes all of it
			}
			written <- err
		}()
		time.AfterFunc(50*time.Millisecond, to.Close)
		select {
		case err := <-written:
			if !errors.Is(err, ErrInterrupted) {
				t.Errorf("Write: got %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Write is not interrupted")
		}
	})
}

// TestEnd: a reader learns of the last writer's end, and a writer of the last reader's.
func TestEnd(t *testing.T) {
	each(t, func(t *testing.T, r, w *os.File) {
		if _, err := w.WriteString("last"); err != nil {
			t.Fatal(err)
		}
		from := use(t, r, ForRead)
		closeFirst(t, w)
		b := make([]byte, 10)
		if n, err := from.Read(b); string(b[:n]) != "last" || err != nil {
			t.Errorf("Read: got %q, %v", b[:n], err)
		}
		if _, err := from.Read(b); !errors.Is(err, io.EOF) && !errors.Is(err, unix.EIO) { // EIO: of a terminal
			t.Errorf("Read at the end: got %v", err)
		}
	})
	each(t, func(t *testing.T, r, w *os.File) {
		to := use(t, w, ForWrite)
		closeFirst(t, r)
		if _, err := to.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, unix.EIO) {
			t.Errorf("Write without a reader: got %v", err)
		}
	})
}

// closeFirst closes the open file and keeps its descriptor usable.
func closeFirst(t *testing.T, f *os.File) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	flags := flagsOf(t, f)
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if err := unix.Dup3(int(null.Fd()), int(fd), unix.O_CLOEXEC); err != nil {
			t.Error(err)
		}
		_, _ = unix.FcntlInt(fd, unix.F_SETFL, flags)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDrain: bytes that are there are read, and then the end comes although the writer stays.
func TestDrain(t *testing.T) {
	each(t, func(t *testing.T, r, w *os.File) {
		from := use(t, r, ForRead)
		if _, err := w.WriteString("some"); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Millisecond, from.Drain)
		got, err := io.ReadAll(from)
		if string(got) != "some" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestFiles have no readiness: a regular file, an empty one, and devices.
func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	to := use(t, f, ForWrite)
	if n, err := to.Write(make([]byte, 100000)); n != 100000 || err != nil {
		t.Errorf("Write: got %d, %v", n, err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	from := use(t, in, ForRead)
	if got, err := io.ReadAll(from); len(got) != 100000 || err != nil {
		t.Errorf("ReadAll: got %d bytes, %v", len(got), err)
	}
	from.Interrupt()
	if _, err := from.Read(make([]byte, 1)); !errors.Is(err, ErrInterrupted) {
		t.Errorf("Read after Interrupt: got %v", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := use(t, null, ForRead).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Read of /dev/null: got %v", err)
	}
	if n, err := use(t, null, ForWrite).Write([]byte("x")); n != 1 || err != nil {
		t.Errorf("Write to /dev/null: got %d, %v", n, err)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err := use(t, full, ForWrite).Write([]byte("x")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Write to /dev/full: got %v", err)
	}
	if _, err := use(t, in, ForWrite).Write([]byte("x")); !errors.Is(err, unix.EBADF) {
		t.Errorf("Write to a file that is open for reading: got %v", err)
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := use(t, dir, ForRead).Read(make([]byte, 1)); !errors.Is(err, unix.EISDIR) {
		t.Errorf("Read of a directory: got %v", err)
	}
}

// TestClose while a system call uses the file: the descriptor stays until the call returns.
func TestClose(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	f := use(t, w, ForWrite)
	fd, err := f.acquire()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	f.Close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		t.Errorf("the descriptor is closed during a call: %v", err)
	}
	f.release()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd != -1 {
		t.Error("the descriptor is open after the last call")
	}
}
