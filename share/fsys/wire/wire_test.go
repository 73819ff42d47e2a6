package wire_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/fsystest"
	"github.com/bulkhead-project/bulkhead/share/fsys"
	"github.com/bulkhead-project/bulkhead/share/fsys/wire"
)

func TestMain(m *testing.M) { fsystest.Main(m) }

const maxWrite = 8 << 10

// guest sends messages to a file system of one root, "data" (node 2 once it is looked up).
type guest struct {
	t    *testing.T
	fs   *fsys.FS
	wire *wire.Wire
}

func newGuest(t *testing.T, dir string) *guest {
	t.Helper()
	fs, err := fsystest.New(fsystest.Spec{
		Options: fsys.Options{Descriptors: 200, Nodes: 500, Waiters: 4},
		Roots:   []fsystest.Root{{Root: fsys.Root{Name: "data"}, Path: dir}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &guest{t, fs, wire.New(fs, wire.Options{MaxWrite: maxWrite, Panicked: func(what any) {
		t.Errorf("panic: %v", what)
	}})}
}

// send returns the error and the data of the answer to a message.
func (g *guest) send(m []byte) (unix.Errno, []byte) {
	g.t.Helper()
	reply := make([]byte, maxWrite+wire.Overhead)
	n := g.wire.Answer(m, reply)
	if n == 0 {
		return 0, nil
	}
	if n < wire.OutHeader || int(binary.NativeEndian.Uint32(reply)) != n {
		g.t.Fatalf("%d bytes of answer say that they are %d", n, binary.NativeEndian.Uint32(reply))
	}
	if got, want := binary.NativeEndian.Uint64(reply[8:]), binary.NativeEndian.Uint64(m[8:]); got != want {
		g.t.Fatalf("answer to %x, request is %x", got, want)
	}
	errno := -int32(binary.NativeEndian.Uint32(reply[4:]))
	if errno < 0 || errno > 4095 {
		g.t.Fatalf("error %d", errno)
	}
	return unix.Errno(errno), reply[wire.OutHeader:n]
}

// small returns a directory of a file system that is too small for hostile requests to fill the disk.
func small(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wire")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("wire", dir, "tmpfs", 0, "size=16m,nr_inodes=10000"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
		os.Remove(dir)
	})
	if err := os.MkdirAll(filepath.Join(dir, "shared/d"), 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// everything is a script with each request once.
func everything() [][]byte {
	times := make([]byte, 88)
	return [][]byte{
		hello(), message(lookup, 1, "data"), message(lookup, 2, "d"), message(getattr, 2, uint64(0), uint64(0)), message(statfs, 2),
		message(create, 2, uint32(unix.O_RDWR), uint32(0o644), uint32(0o22), uint32(0), "file"),
		message(write, 4, uint64(1), uint64(0), uint32(5), uint32(0), uint64(0), uint32(0), uint32(0), []byte("hello")),
		message(read, 4, uint64(1), uint64(0), uint32(4096), uint32(0), uint64(0), uint32(0), uint32(0)),
		message(setattr, 4, times), message(fsync, 4, uint64(1), uint64(0)), message(lseek, 4, uint64(1), uint64(0), uint32(3), uint32(0)),
		message(fallocate, 4, uint64(1), uint64(0), uint64(4096), uint64(0)),
		message(setxattr, 4, uint32(1), uint32(0), "user.a", []byte("v")), message(getxattr, 4, uint64(100), "user.a"),
		message(listxattr, 4, uint64(100)), message(removexattr, 4, "user.a"),
		message(setlk, 4, uint64(1), uint64(7), uint64(0), uint64(10), uint32(1), uint32(1), uint32(0), uint32(0)),
		message(setlkw, 4, uint64(1), uint64(8), uint64(0), uint64(10), uint32(1), uint32(1), uint32(0), uint32(0)),
		message(getlk, 4, uint64(1), uint64(8), uint64(0), uint64(10), uint32(1), uint32(1), uint32(0), uint32(0)),
		message(interrupt, 0, uint64(setlkw)<<32|4), message(flush, 4, uint64(1), uint64(0), uint64(7)),
		message(copyRange, 4, uint64(1), uint64(0), uint64(4), uint64(1), uint64(100), uint64(5), uint64(0)),
		message(link, 2, uint64(4), "other"), message(symlink, 2, "s", "target"), message(lookup, 2, "s"), message(readlink, 5),
		message(mknod, 2, uint32(unix.S_IFIFO|0o600), uint64(0), uint32(0), "fifo"), message(open, 6, uint64(0)),
		message(mkdir, 3, uint32(0o755), uint32(0), "sub"), message(rename, 2, uint64(3), "other", "moved"),
		message(rename2, 2, uint64(3), uint64(2), "s", "moved"), message(tmpfile, 2, uint32(unix.O_RDWR), uint32(0o600), uint64(0), "/"),
		message(opendir, 2, uint64(0)), message(readdir, 2, uint64(3), uint64(0), uint32(4096), uint32(0), uint64(0), uint64(0)),
		message(readdirplus, 2, uint64(3), uint64(0), uint32(4096), uint32(0), uint64(0), uint64(0)), message(opendir, 1, uint64(0)),
		message(readdirplus, 1, uint64(0), uint64(0), uint32(4096), uint32(0), uint64(0), uint64(0)),
		message(releasedir, 2, uint64(3), uint64(0), uint64(0)), message(unlink, 2, "file"), message(rmdir, 3, "sub"),
		message(forget, 4, uint64(1)), message(batchForget, 0, uint32(2), uint32(0), uint64(3), uint64(1), uint64(4), ^uint64(0)),
		message(release, 4, uint64(1), uint64(0), uint64(0)), message(destroy, 0),
	}
}

// descriptors returns the number of this process's descriptors.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestEverything: each request of the fuzzer's first script gets a proper answer, so that the fuzzer starts from valid
// requests.
func TestEverything(t *testing.T) {
	g := newGuest(t, filepath.Join(small(t), "shared"))
	defer g.fs.Close()
	var ids guestIDs
	failed := map[uint32]unix.Errno{}
	for _, m := range messages(script(everything()...)) {
		ids.fit(m)
		opcode := binary.NativeEndian.Uint32(m[4:])
		if opcode == setlkw {
			continue // it waits
		}
		errno, answer := g.send(m)
		ids.learn(opcode, answer)
		if errno != 0 {
			failed[opcode] = errno
		}
	}
	// The FIFO is not opened, and nothing is there to interrupt.
	want := map[uint32]unix.Errno{open: unix.EPERM, interrupt: unix.EAGAIN}
	if diff := cmp.Diff(want, failed); diff != "" {
		t.Error(diff)
	}
}

// FuzzAnswer sends false requests. Nothing panics, every answer is valid, no file stays open, and no file outside of
// the share changes.
func FuzzAnswer(f *testing.F) {
	dir := small(f)
	if err := os.WriteFile(filepath.Join(dir, "canary"), []byte("canary"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Add(script(everything()...))
	for _, m := range everything() {
		f.Add(script(hello(), message(lookup, 1, "data"), message(lookup, 2, "d"), m, m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := descriptors(t)
		g := newGuest(t, filepath.Join(dir, "shared"))
		var blocking sync.WaitGroup
		var ids guestIDs
		for _, m := range messages(data) {
			ids.fit(m)
			if binary.NativeEndian.Uint32(m[4:]) == setlkw {
				blocking.Go(func() { g.send(m) })
				continue
			}
			_, answer := g.send(m)
			ids.learn(binary.NativeEndian.Uint32(m[4:]), answer)
		}
		g.fs.Close()
		blocking.Wait()
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors, there were %d", after, before)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "canary")); string(got) != "canary" {
			t.Errorf("outside: %q, %v", got, err)
		}
		if all, err := os.ReadDir(dir); len(all) != 2 {
			t.Errorf("outside: %v, %v", all, err)
		}
		shared, _ := os.ReadDir(filepath.Join(dir, "shared"))
		for _, e := range shared {
			if e.Name() != "d" || len(shared) > 20 {
				if err := os.RemoveAll(filepath.Join(dir, "shared", e.Name())); err != nil && !errors.Is(err, unix.EPERM) {
					t.Error(err)
				}
			}
		}
	})
}
