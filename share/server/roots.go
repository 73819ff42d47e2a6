package server

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// roots is the file system with the directories that the engine has mounted in dir. It adds a directory when the guest
// asks for it by name.
type roots struct {
	*fsys.FS
	dir *os.File

	mu    sync.Mutex
	known map[string]bool

	looked atomic.Int64 // time of rescan's last look, in nanoseconds
}

func newRoots(files *fsys.FS, dir *os.File) *roots {
	return &roots{FS: files, dir: dir, known: map[string]bool{}}
}

// Lookup implements fuse.RawFileSystem.
func (r *roots) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if header.NodeId == fuse.FUSE_ROOT_ID {
		if err := r.find(name); err != nil {
			return fuse.ToStatus(err)
		}
	}
	return r.FS.Lookup(cancel, header, name, out)
}

// findAll shares the directories that exist already: a guest of an earlier server knows them.
func (r *roots) findAll() error {
	fd, err := unix.Openat(int(r.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), share.Dir)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if _, ok := share.CacheOf(name); !ok {
			continue // left half made
		}
		if err := r.find(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return err
}

// lookPause is the shortest pause between two looks through the directory that a guest can cause.
const lookPause = time.Second

// rescan shares new directories, and reports whether there were any. A directory may not have answered when this server
// started, while the guest has mounts of it and does not ask for its name any more.
func (r *roots) rescan() bool {
	now, last := time.Now().UnixNano(), r.looked.Load()
	if now-last < int64(lookPause) || !r.looked.CompareAndSwap(last, now) {
		return false
	}
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.known)
	}
	before := count()
	_ = r.findAll() // a directory that cannot be shared stays unknown
	return count() > before
}

// find shares the directory with that name, if it is not shared yet.
func (r *roots) find(name string) error {
	cache, ok := share.CacheOf(name)
	if !ok {
		return unix.ENOENT
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[name] {
		return nil
	}
	fd, err := unix.Openat2(int(r.dir.Fd()), name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	err = r.Add(fsys.Root{
		Name: name, Dir: os.NewFile(uintptr(fd), name), ReadOnly: share.ReadOnly(name), SetID: share.SetID(name), Cache: caches[cache],
	})
	if err != nil {
		return fmt.Errorf("%w: %w", unix.EIO, err)
	}
	r.known[name] = true
	return nil
}

// caches maps the modes to fsys's.
var caches = map[share.Cache]fsys.Cache{share.Auto: fsys.CacheAuto, share.None: fsys.CacheNone, share.Always: fsys.CacheAlways}
