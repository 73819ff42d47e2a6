// Package fsystest mounts a file system of package fsys on this host, for tests, which are root's.
package fsystest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys"
	"github.com/bulkhead-project/bulkhead/share/fsys/wire"
)

// maxWrite is of one request's data.
const maxWrite = 128 << 10

// Mount is a directory with the roots of fs, until the test ends.
func Mount(t testing.TB, fs *fsys.FS) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fsys")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(fd, fs, wire.Options{MaxWrite: maxWrite})
	}()
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount, so a test has left something open: %v", err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
		<-ended
		_ = unix.Close(fd)
		fs.Close()
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	settlePoll(t, fs, dir)
	return dir
}

// Attach mounts a file system on dir, and is the descriptor that its requests come from.
func Attach(dir string) (int, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=%d", fd, maxWrite)
	if err := unix.Mount("bulkhead", dir, "fuse.bulkhead", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Serve answers the requests from fd until the file system is unmounted.
func Serve(fd int, fs *fsys.FS, o wire.Options) {
	o.MaxWrite = maxWrite
	w := wire.New(fs, o)
	var all sync.WaitGroup
	defer all.Wait()
	buffers := sync.Pool{New: func() any { return new([2][maxWrite + wire.Overhead]byte) }}
	for {
		b := buffers.Get().(*[2][maxWrite + wire.Overhead]byte)
		n, err := unix.Read(fd, b[0][:])
		switch {
		case err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT:
			continue
		case err != nil:
			return
		}
		all.Go(func() {
			if n := w.Answer(b[0][:n], b[1][:]); n > 0 {
				_, _ = unix.Write(fd, b[1][:n])
			}
			buffers.Put(b)
		})
	}
}

// settlePoll has the kernel learn that the file system does not answer FUSE_POLL. Go asks for it when package os opens
// a file, in a way that stops this very process until there is an answer.
func settlePoll(t testing.TB, fs *fsys.FS, dir string) {
	t.Helper()
	const name = "settle-poll"
	Share(t, fs, fsys.Root{Name: name, Cache: fsys.CacheNone}, t.TempDir())
	if err := os.Mkdir(filepath.Join(dir, name, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(filepath.Join(dir, name, "f"), unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove(name); err != nil {
		t.Fatal(err)
	}
}

// Share adds the directory or file path to fs as root, which has everything else.
func Share(t testing.TB, fs *fsys.FS, root fsys.Root, path string) {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root.Dir = os.NewFile(uintptr(fd), path)
	if err := fs.Add(root); err != nil {
		t.Fatal(err)
	}
}
