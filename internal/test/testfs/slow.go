package testfs

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Slowness is a file system with the files late and later. Their reads are answered when the test wants. The test's own
// process must not open them.
type Slowness struct {
	// Asked gets a value for each waiting read.
	Asked chan struct{}

	mu     sync.Mutex
	answer chan struct{} // closed to answer reads
}

// Late is the content of each file.
const Late = "late\n"

// Slow mounts one on dir, which it creates. Its reads wait until Answer. It is unmounted when the test ends.
func Slow(t *testing.T, dir string) *Slowness {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &Slowness{Asked: make(chan struct{}, 1000), answer: make(chan struct{})}
	top := &slowTop{slow: s}
	_, err := fs.Mount(dir, top, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, FsName: "slow", Name: "slow",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Answer()
		_ = unix.Unmount(dir, unix.MNT_DETACH) // a share server may have it as well
	})
	return s
}

// Answer answers all reads from now on, including waiting ones.
func (s *Slowness) Answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.answer:
	default:
		close(s.answer)
	}
}

// Hold makes reads wait again.
func (s *Slowness) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.Asked) > 0 {
		<-s.Asked
	}
	s.answer = make(chan struct{})
}

func (s *Slowness) answered() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer
}

type slowTop struct {
	fs.Inode
	slow *Slowness
}

// OnAdd implements fs.NodeOnAdder.
func (d *slowTop) OnAdd(ctx context.Context) {
	for _, name := range []string{"late", "later"} {
		file := &slowFile{slow: d.slow}
		d.AddChild(name, d.NewPersistentInode(ctx, file, fs.StableAttr{Mode: fuse.S_IFREG}), false)
	}
}

type slowFile struct {
	fs.Inode
	slow *Slowness
}

// Getattr implements fs.NodeGetattrer.
func (f *slowFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o644, uint64(len(Late))
	return 0
}

// Open implements fs.NodeOpener. It disables caching.
func (f *slowFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader. It waits uninterruptibly, as on a slow disk.
func (f *slowFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	f.slow.Asked <- struct{}{}
	<-f.slow.answered()
	if at >= int64(len(Late)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(append(dest[:0], Late[at:]...)), 0
}
