package fsys_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/fsystest"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// TestLocks: two guests and the host see one another's locks.
func TestLocks(t *testing.T) {
	t.Parallel()
	first, host := share(t, fsys.Options{}, fsys.Root{})
	top := fsystest.Mount(t, fsystest.Spec{Roots: []fsystest.Root{{Root: fsys.Root{Name: "data"}, Path: host}}})
	writeFile(t, filepath.Join(host, "file"), "data")
	var fds []int
	for _, dir := range []string{first, filepath.Join(top, "data"), host} {
		fd, err := unix.Open(filepath.Join(dir, "file"), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	for name, lock := range map[string]func(fd int, typ int16) error{
		"flock": func(fd int, typ int16) error {
			return unix.Flock(fd, map[int16]int{unix.F_WRLCK: unix.LOCK_EX, unix.F_UNLCK: unix.LOCK_UN}[typ]|unix.LOCK_NB)
		},
		"posix": func(fd int, typ int16) error {
			return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: typ, Start: 10, Len: 10})
		},
	} {
		for i, holder := range fds {
			if err := lock(holder, unix.F_WRLCK); err != nil {
				t.Fatalf("%s %d: %v", name, i, err)
			}
			for j, other := range fds {
				if err := lock(other, unix.F_WRLCK); i != j && !errors.Is(err, unix.EAGAIN) {
					t.Errorf("%s of %d beside %d: %v", name, j, i, err)
				}
			}
			if err := lock(holder, unix.F_UNLCK); err != nil {
				t.Errorf("%s %d: %v", name, i, err)
			}
		}
	}
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: 5, Len: 10}
	if err := unix.FcntlFlock(uintptr(fds[2]), unix.F_OFD_SETLK, &l); err != nil {
		t.Fatal(err)
	}
	l = unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(uintptr(fds[0]), unix.F_OFD_GETLK, &l); err != nil || l.Type != unix.F_WRLCK || l.Start != 5 || l.Len != 10 {
		t.Errorf("in the way: %+v, %v", l, err)
	}
}

// TestLocksEnd: a process's locks end when it closes the file, and an open file's locks end with it.
func TestLocksEnd(t *testing.T) {
	t.Parallel()
	mounted, host := share(t, fsys.Options{}, fsys.Root{})
	writeFile(t, filepath.Join(host, "file"), "data")
	mine, err := unix.Open(filepath.Join(host, "file"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mine)
	for name, cmd := range map[string]int{"of a process": unix.F_SETLK, "of an open file": unix.F_OFD_SETLK} {
		fd, err := unix.Open(filepath.Join(mounted, "file"), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.FcntlFlock(uintptr(fd), cmd, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := unix.FcntlFlock(uintptr(mine), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err == nil {
			t.Errorf("%s: does not hold", name)
		}
		_ = unix.Close(fd)
		within(t, name, 2*time.Second, func() bool {
			return unix.FcntlFlock(uintptr(mine), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) == nil
		})
		_ = unix.FcntlFlock(uintptr(mine), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
	}
}

// TestLocksWait: requests that wait for a lock are bounded, can be interrupted, block nothing, get the lock when it is
// released, and end with the file system.
func TestLocksWait(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	writeFile(t, filepath.Join(host, "file"), "data")
	g, dir := raw(t, fsys.Options{Waiters: 3}, fsys.Root{}, host)
	node := g.lookup(dir, "file")
	fh := g.open(node, unix.O_RDWR)
	request := func(owner uint64, typ uint32) *fuse.LkIn {
		return &fuse.LkIn{InHeader: head(node), Fh: fh, Owner: owner, Lk: fuse.FileLock{End: 100, Typ: typ}}
	}
	if st := g.SetLk(nil, request(1, unix.F_WRLCK)); !st.Ok() {
		t.Fatal(st)
	}
	if st := g.SetLk(nil, request(2, unix.F_RDLCK)); st != fuse.EAGAIN {
		t.Errorf("a lock that another has: %v", st)
	}
	cancel := make(chan struct{})
	type result struct {
		owner uint64
		st    fuse.Status
	}
	results := make(chan result, 4)
	for owner := uint64(2); owner < 5; owner++ {
		c := make(chan struct{})
		if owner == 2 {
			c = cancel
		}
		go func() { results <- result{owner, g.SetLkw(c, request(owner, unix.F_WRLCK))} }()
	}
	// A waiter beyond the bound is refused, once the others wait.
	within(t, "three wait", 2*time.Second, func() bool {
		c := make(chan struct{})
		close(c)
		return g.SetLkw(c, request(9, unix.F_WRLCK)) == fuse.Status(unix.ENOLCK)
	})
	if st := g.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(node)}, new(fuse.AttrOut)); !st.Ok() {
		t.Errorf("another request: %v", st)
	}
	close(cancel)
	if r := <-results; r.owner != 2 || r.st != fuse.EINTR {
		t.Errorf("interrupted: %+v", r)
	}
	if st := g.Flush(nil, &fuse.FlushIn{InHeader: head(node), Fh: fh, LockOwner: 1}); !st.Ok() {
		t.Errorf("flush: %v", st)
	}
	got := <-results
	if !got.st.Ok() {
		t.Errorf("given back: %+v", got)
	}
	g.Close()
	if r := <-results; r.owner == got.owner || r.st != fuse.EIO {
		t.Errorf("at the end: %+v", r)
	}
}
