package fdpass_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/fdpass"
)

// openFiles returns the number of this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestMostFiles: the maximum number of files arrives. One more is refused by either side, and all of them are closed.
func TestMostFiles(t *testing.T) {
	a, b := pair(t)
	f := file(t, "x")
	most := make([]*os.File, fdpass.MaxFiles)
	for i := range most {
		most[i] = f
	}
	buf := make([]byte, 10)
	if err := fdpass.Send(a, []byte("data"), most...); err != nil {
		t.Fatal(err)
	}
	n, files, err := fdpass.Receive(b, buf)
	if err != nil || string(buf[:n]) != "data" || len(files) != fdpass.MaxFiles {
		t.Errorf("%q with %d files: %v", buf[:n], len(files), err)
	}
	before := openFiles(t)
	fdpass.CloseAll(append(files, nil))
	if after := openFiles(t); before-after != fdpass.MaxFiles {
		t.Errorf("%d files of %d are closed", before-after, fdpass.MaxFiles)
	}

	before = openFiles(t)
	if err := fdpass.Send(a, []byte("data"), append([]*os.File{f}, most...)...); err == nil {
		t.Error("too many files were sent")
	}
	fds := make([]int, fdpass.MaxFiles+1)
	for i := range fds {
		fds[i] = int(f.Fd())
	}
	if _, _, err := a.WriteMsgUnix([]byte("data"), unix.UnixRights(fds...), nil); err != nil {
		t.Fatal(err)
	}
	if n, files, err := fdpass.Receive(b, buf); err == nil || n != 0 || files != nil {
		t.Errorf("too many files were received: %d bytes, %d files", n, len(files))
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, and were %d", after, before)
	}
}

// TestSendFails: a closed file is an error, and nothing is sent or kept.
func TestSendFails(t *testing.T) {
	a, b := pair(t)
	closed := file(t, "x")
	closed.Close()
	f := file(t, "x")
	before := openFiles(t)
	if err := fdpass.Send(a, []byte("data"), f, closed); err == nil || !strings.Contains(err.Error(), "closed file") {
		t.Errorf("a closed file: %v", err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, and were %d", after, before)
	}
	if err := fdpass.Send(a, []byte("alone")); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 10)
	if n, files, err := fdpass.Receive(b, buf); err != nil || string(buf[:n]) != "alone" || len(files) != 0 {
		t.Errorf("%q with %d files: %v", buf[:n], len(files), err)
	}
	a.Close()
	if err := fdpass.Send(a, []byte("data"), f); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed connection: %v", err)
	}
	if _, _, err := fdpass.Receive(b, buf); !errors.Is(err, io.EOF) && err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestNames(t *testing.T) {
	var s fdpass.Store
	defer s.Close()
	for name, allowed := range map[string]bool{
		"":                                    false,
		strings.Repeat("a", fdpass.MaxName):   true,
		strings.Repeat("b", fdpass.MaxName+1): false,
	} {
		a, b := pair(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Receive(b) // the test checks the sender's error
		}()
		err := fdpass.SendNamed(t.Context(), a, name, file(t, "x"))
		if (err == nil) != allowed || !allowed && !strings.Contains(err.Error(), "1 to 255") {
			t.Errorf("a name of %d bytes: %v", len(name), err)
		}
		a.Close()
		<-done
	}
}

// TestRefusedFilesAreClosed: files that are not kept are closed.
func TestRefusedFilesAreClosed(t *testing.T) {
	var s fdpass.Store
	defer s.Close()
	f := file(t, "x")
	a, b := pair(t)
	if err := fdpass.Send(a, []byte("name"), f, f); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	if err := s.Receive(b); err == nil {
		t.Error("two files of one name are kept")
	}
	if after := openFiles(t); after != before-1 { // the connection
		t.Errorf("%d files are open, and were %d", after, before)
	}
}

// TestFilesExpire: an unused file is closed, but not its replacement of the same name.
func TestFilesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s fdpass.Store
		defer s.Close()
		old, left, taken := file(t, "old"), file(t, "left"), file(t, "taken")
		put := func(name string, f *os.File) {
			if err := s.Add(name, f); err != nil {
				t.Fatal(err)
			}
		}
		put("disk", old)
		time.Sleep(fdpass.Patience / 2)
		put("disk", left)
		put("other", taken)
		if _, err := old.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a file that was replaced: %v", err)
		}
		if f, err := s.Remove("other"); f != taken || err != nil {
			t.Error(err)
		}
		time.Sleep(fdpass.Patience/2 + time.Second)
		if _, err := left.Stat(); err != nil {
			t.Errorf("half of its time has passed: %v", err)
		}
		time.Sleep(fdpass.Patience)
		synctest.Wait()
		if _, err := left.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("an expired file: %v", err)
		}
		if _, err := s.Remove("disk"); !errors.Is(err, fdpass.ErrNoFile) {
			t.Error(err)
		}
		if _, err := taken.Stat(); err != nil {
			t.Errorf("a file that was taken: %v", err)
		}
	})
}
