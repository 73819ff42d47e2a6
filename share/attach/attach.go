// Package attach mounts directories of the host in the mount namespace of a share server. A short-lived process does
// that: a thread that has joined a mount namespace cannot be used for anything else, and an ordinary user's engine
// cannot join a user namespace.
package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share"
)

// Tree is a directory or a file of the host. The process reads its trees from stdin, in JSON.
type Tree struct {
	Name string `json:"name"` // share.Name
	// FD is its number among the process's descriptors, Path its path without links. A process without the host's own
	// mounts opens the path again, and it must lead to the same file.
	FD       int    `json:"fd"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	Follow   bool   `json:"follow,omitempty"` // share.Name
	// Detached is set if FD is a detached mount already.
	Detached bool `json:"detached,omitempty"`
	// Masks are directories below it that appear empty.
	Masks []string `json:"masks,omitempty"`
}

// Request is the input of the process.
type Request struct {
	Namespace int    `json:"namespace"` // the descriptor of the server's mount namespace
	Unshare   bool   `json:"unshare"`   // the process is in a user namespace, without the host's own mounts
	Trees     []Tree `json:"trees"`
	// UID and GID own the server's root directory. A file system in a user namespace takes files of its users only.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
}

// Main runs the process. It skips a tree that is mounted already.
//
// A tree is completed, with its masks, in a mount namespace of this process alone: a hostile server opens anything in
// its directory as soon as it appears.
func Main(in io.Reader) error {
	var r Request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	runtime.LockOSThread() // never unlocked: the thread belongs to the namespace from now on
	if r.Unshare {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare the mounts: %w", err)
		}
	}
	trees := make([]int, len(r.Trees))
	for i, t := range r.Trees {
		fd, err := t.open(r.Unshare)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Path, err)
		}
		trees[i] = fd
	}
	if err := finishAll(r.Trees, trees); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(r.Namespace, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("join the server's mounts: %w", err)
	}
	dir, err := unix.Open(share.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the server's directory: %w", err)
	}
	if err := r.become(); err != nil {
		return err
	}
	for i, t := range r.Trees {
		if err := t.place(dir, trees[i]); err != nil {
			return fmt.Errorf("%s: %w", t.Path, err)
		}
	}
	return nil
}

// become makes the thread create files as the owner of the server's directory.
func (r Request) become() error {
	if r.UID == 0 && r.GID == 0 {
		return nil
	}
	if err := unix.Setfsgid(r.GID); err != nil {
		return fmt.Errorf("become group %d: %w", r.GID, err)
	}
	if err := unix.Setfsuid(r.UID); err != nil {
		return fmt.Errorf("become user %d: %w", r.UID, err)
	}
	return nil
}

// attributes of every tree's mount: no program in it is executed on the host, and no link is followed.
const attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSYMFOLLOW

// open returns a detached mount of the tree, with all mounts below it.
func (t Tree) open(byPath bool) (int, error) {
	if t.Detached {
		return t.FD, t.restrict(t.FD)
	}
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE
	at := t.FD
	if byPath {
		var err error
		if at, err = t.reopen(); err != nil {
			return -1, err
		}
		defer unix.Close(at)
	}
	fd, err := unix.OpenTree(at, "", flags|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("clone its mount: %w", err)
	}
	return fd, t.restrict(fd)
}

// restrict sets the attributes of a detached mount and of the mounts below it.
func (t Tree) restrict(fd int) error {
	attr := unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE}
	if t.Follow {
		attr.Propagation = unix.MS_SLAVE
	}
	if t.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("set its mount's attributes: %w", tooOld(err))
	}
	return nil
}

// reopen opens the path again. A guest with a directory above it may have changed it meanwhile.
func (t Tree) reopen() (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, t.Path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return -1, fmt.Errorf("open it again: %w", err)
	}
	var was, is unix.Stat_t
	err = errors.Join(unix.Fstat(t.FD, &was), unix.Fstat(fd, &is))
	if err == nil && (was.Dev != is.Dev || was.Ino != is.Ino) {
		err = unix.ESTALE
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("open it again: %w", err)
	}
	return fd, nil
}

// place mounts a tree in the server's directory. Only this process is trusted there.
func (t Tree) place(dir, tree int) error {
	if there, err := mounted(dir, t.Name); there || err != nil {
		return err
	}
	return mountAt(tree, dir, t.Name)
}

// mountAt creates a place of that name in dir and moves a mount to it.
func mountAt(tree, dir int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	if err := makePlace(dir, name, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return move(tree, dir, name)
}

// move moves a mount to the place of that name.
func move(mount, dir int, name string) error {
	target, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return unix.MoveMount(mount, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// makePlace creates the mount point for a directory or a file.
func makePlace(dir int, name string, directory bool) error {
	if directory {
		if err := unix.Mkdirat(dir, name, 0o700); !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	}
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// mounted reports whether there is a mount of that name.
func mounted(dir int, name string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, err
}
