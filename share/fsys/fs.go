// Package fsys is the file system that answers a guest's FUSE requests with directories of the host.
//
// Everything that a request says is hostile. A name is one component, checked, and used by a system call that takes
// it relative to a descriptor and follows no link; no path is ever joined. Files are opened for data from the
// descriptor that they were looked up as, so a name that changes meanwhile changes nothing; what is no regular file or
// directory is never opened. Ids and handles are numbers that were given out once, and never again.
package fsys

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/locks"
	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// Cache is what the guest's kernel may remember of a root.
type Cache = nodes.Cache

// The caches of a root: see package nodes.
const (
	CacheAuto   = nodes.Auto
	CacheNone   = nodes.None
	CacheAlways = nodes.Always
)

// Root is one shared directory, or one shared file.
type Root struct {
	// Name is its entry in the guest's file system: one component.
	Name string
	// Dir is an O_PATH descriptor of it, which Add takes over.
	Dir *os.File `json:"-"`
	// ReadOnly refuses every change with EROFS, and reads without changing access times.
	ReadOnly bool
	// SetID lets the guest make files that are set-user-id on the host. Without it these bits are dropped from what
	// the guest makes, changes the mode of, or writes to.
	SetID bool
	// Cache says what the guest may remember.
	Cache Cache
}

// Owner is a user and a group of the guest.
type Owner struct{ UID, GID uint32 }

// Options are those of a file system.
type Options struct {
	// Owner is whom the process's own files belong to in the guest; all other owners are 65534 there, and new
	// files are the process's own. Nil keeps all owners as they are, for which the process needs CAP_CHOWN,
	// CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_SETUID and CAP_SETGID.
	Owner *Owner
	// ACL passes POSIX access control lists on. It needs Owner to be nil, and a guest's kernel that was told.
	ACL bool
	// ProcSelfFD is /proc/self/fd, opened with O_PATH. New takes it over. Nil opens it.
	ProcSelfFD *os.File `json:"-"`
	// Handles is the number before that of the first handle. A guest may have handles of a process before this one,
	// of the same files.
	Handles uint64
	// Nodes is how many files the guest may know, each at some 300 bytes; 262,144 if 0.
	Nodes int
	// Descriptors is how many the file system may have; most of RLIMIT_NOFILE if 0.
	Descriptors int
	// Waiters is how many requests may wait for locks; 256 if 0.
	Waiters int
}

// FS is a file system of roots. It implements [fuse.RawFileSystem]; all its methods may be called at once.
type FS struct {
	opts    Options
	uid     uint32
	gid     uint32
	proc    int
	table   *nodes.Table
	handles handles
	locks   *locks.Locks
	stop    chan struct{}
	once    sync.Once
	sweeper sync.WaitGroup
}

var _ fuse.RawFileSystem = (*FS)(nil)

// New is a file system without roots. It sets the process's umask to 0, since each request brings the guest's.
func New(o Options) (*FS, error) {
	if o.ACL && o.Owner != nil {
		return nil, errors.New("access control lists need the host's owners (Owner must be nil)")
	}
	proc, err := takeProc(o.ProcSelfFD)
	if err != nil {
		return nil, err
	}
	limit, err := descriptors(o.Descriptors)
	if err != nil {
		return nil, err
	}
	unix.Umask(0)
	fs := &FS{
		opts: o,
		uid:  uint32(os.Geteuid()),
		gid:  uint32(os.Getegid()),
		proc: proc,
		// Open files keep their nodes' descriptors, so there are more of these than of handles.
		table:   nodes.New(nodes.Limits{Nodes: or(o.Nodes, 1<<18), Descriptors: limit / 2}),
		handles: handles{max: limit * 3 / 8, next: o.Handles, open: map[uint64]*handle{}},
		stop:    make(chan struct{}),
	}
	fs.locks = locks.New(locks.Limits{Descriptors: limit / 8, Waiters: or(o.Waiters, 256)}, fs.stop)
	fs.sweeper.Go(fs.sweep)
	return fs, nil
}

// sweepPause is how long a file that the host has removed may still take room.
const sweepPause = 5 * time.Second

// sweep looks for removed files until the file system ends. A file's last descriptor hides its end from any watch.
func (fs *FS) sweep() {
	tick := time.NewTicker(sweepPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fs.table.Sweep()
		case <-fs.stop:
			return
		}
	}
}

// Add shares a root, also while requests are answered. It is an error if its name is taken or is no name.
func (fs *FS) Add(r Root) error {
	defer r.Dir.Close()
	if err := component(r.Name); err != nil {
		return fmt.Errorf("share %q: %w", r.Name, err)
	}
	fd, err := unix.FcntlInt(r.Dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("share %q: %w", r.Name, err)
	}
	var st unix.Statx_t
	err = nodes.Stat(fd, &st)
	if t := st.Mode & unix.S_IFMT; err == nil && t != unix.S_IFDIR && t != unix.S_IFREG {
		err = errors.New("must be a directory or a regular file")
	}
	if err == nil {
		err = fs.table.AddTree(&nodes.Tree{Name: r.Name, ReadOnly: r.ReadOnly, SetID: r.SetID, Cache: r.Cache}, fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("share %q: %w", r.Name, err)
	}
	return nil
}

// Remove ends the sharing of a root: all that the guest has of it is ESTALE, and all descriptors are closed once
// the requests that use them have ended.
func (fs *FS) Remove(name string) error {
	tree, err := fs.table.RemoveTree(name)
	if err != nil {
		return err
	}
	fs.handles.drop(func(h *handle) bool { return h.ref.Tree() == tree })
	return nil
}

// Close ends requests that wait for locks, removes all roots and closes all descriptors. No other requests may be under
// way.
func (fs *FS) Close() {
	fs.once.Do(func() {
		close(fs.stop)
		fs.sweeper.Wait()
		for _, tree := range fs.table.Trees(0) {
			_ = fs.Remove(tree.Name)
		}
		fs.locks.Close()
		_ = unix.Close(fs.proc)
	})
}

func or(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}
