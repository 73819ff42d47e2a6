// Package fsys is the file system that answers a guest's FUSE requests with directories of the host.
//
// Every request is treated as hostile. A name must be one component. The system calls take it relative to a descriptor
// and follow no link; paths are never joined. A file is opened for data through the descriptor of its look-up, so a
// later change of its name has no effect. Only regular files and directories are ever opened. Ids and handles are
// numbers that are used once.
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

// Cache says how long the guest's kernel may cache the contents of a root.
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
	// Dir is an O_PATH descriptor of it. Add owns it.
	Dir *os.File `json:"-"`
	// ReadOnly refuses every change with EROFS, and reads without changing access times.
	ReadOnly bool
	// SetID lets the guest create files that are set-user-id on the host. Without it these bits are dropped when the
	// guest creates a file, changes its mode or writes to it.
	SetID bool
	// Cache is the cache mode.
	Cache Cache
}

// Owner is a user and a group of the guest.
type Owner struct{ UID, GID uint32 }

// Options configure a file system.
type Options struct {
	// Owner is the owner that the guest sees of the process's own files. All other owners are 65534 in the guest, and
	// the process owns new files. Nil keeps all owners; the process then needs CAP_CHOWN, CAP_DAC_OVERRIDE,
	// CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_SETUID and CAP_SETGID.
	Owner *Owner
	// ACL passes on POSIX access control lists. It needs a nil Owner, and the guest's kernel must have agreed to them.
	ACL bool
	// ProcSelfFD is /proc/self/fd, opened with O_PATH. New owns it. If it is nil, New opens it.
	ProcSelfFD *os.File `json:"-"`
	// Handles is the number before the first handle. The guest may still have handles of an earlier process, for the
	// same files.
	Handles uint64
	// Nodes is the most files that the guest may know, at some 300 bytes each; 262,144 if 0.
	Nodes int
	// Descriptors is the most descriptors of the file system; most of RLIMIT_NOFILE if 0.
	Descriptors int
	// Waiters is the most requests that may wait for locks; 256 if 0.
	Waiters int
}

// FS is a file system of roots. It implements [fuse.RawFileSystem]. It is safe for concurrent use.
type FS struct {
	locking // the requests for locks
	xattrs  // the requests for extended attributes

	host    host
	view    view
	table   *nodes.Table
	handles *handles
	stop    chan struct{}
	once    sync.Once
	sweeper sync.WaitGroup
}

var _ fuse.RawFileSystem = (*FS)(nil)

// New returns a file system without roots. It sets the process's umask to 0, since each request has the guest's.
func New(o Options) (*FS, error) {
	if o.ACL && o.Owner != nil {
		return nil, errors.New("access control lists need the host's owners (Owner must be nil)")
	}
	proc, err := openProc(o.ProcSelfFD)
	if err != nil {
		return nil, err
	}
	limit, err := descriptors(o.Descriptors)
	if err != nil {
		return nil, err
	}
	unix.Umask(0)
	h, stop := host{proc}, make(chan struct{})
	// Open files keep their nodes' descriptors, so there are more descriptors than handles.
	table := nodes.New(nodes.Limits{Nodes: or(o.Nodes, 1<<18), Descriptors: limit / 2})
	open := &handles{max: limit * 3 / 8, next: o.Handles, open: map[uint64]*handle{}}
	all := locks.New(locks.Limits{Descriptors: limit / 8, Waiters: or(o.Waiters, 256)}, stop)
	fs := &FS{
		locking: locking{host: h, handles: open, locks: all},
		xattrs:  xattrs{host: h, table: table, acl: o.ACL},
		host:    h,
		view:    view{owner: o.Owner, uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), table: table},
		table:   table,
		handles: open,
		stop:    stop,
	}
	fs.sweeper.Go(fs.sweep)
	return fs, nil
}

// sweepPause is the longest time that a file removed on the host may still use disk space.
const sweepPause = 5 * time.Second

// sweep looks for removed files until the file system is closed. While a file has a descriptor, no watch reports its
// removal.
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

// Add shares a root. It may be called while requests are answered. It is an error if its name is invalid or in use.
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

// Remove stops sharing a root. The guest's accesses to it fail with ESTALE, and all its descriptors are closed when the
// requests that use them have ended.
func (fs *FS) Remove(name string) error {
	tree, err := fs.table.RemoveTree(name)
	if err != nil {
		return err
	}
	fs.handles.drop(func(h *handle) bool { return h.ref.Tree() == tree })
	return nil
}

// Close ends requests that wait for locks, removes all roots and closes all descriptors. No other requests may run.
func (fs *FS) Close() {
	fs.once.Do(func() {
		close(fs.stop)
		fs.sweeper.Wait()
		for _, tree := range fs.table.Trees(0) {
			_ = fs.Remove(tree.Name)
		}
		fs.locks.Close()
		_ = unix.Close(fs.host.proc)
	})
}

func or(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}
