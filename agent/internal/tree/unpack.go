package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Unpack writes a tree from the host below a container's root. The files belong to owner, a uid and a gid.
func Unpack(s *agentv1.Stream, root *os.File, owner [2]int, r agentv1.Unpack) error {
	u := &unpacker{r: s.Conn, owner: owner}
	if err := u.destination(root, r); err != nil {
		return err
	}
	defer u.dest.Close()
	if err := s.Reply(nil); err != nil {
		return err
	}
	var reply agentv1.Reply
	if err := u.run(); err != nil {
		reply.Error = agentv1.ToError(err)
	}
	return agentv1.WriteFrame(s.Conn, reply, agentv1.MaxReply)
}

// unpacker writes a tree below a directory, and follows no symbolic link.
type unpacker struct {
	r      io.Reader
	owner  [2]int
	dest   *os.File // O_PATH
	rename string   // replaces the first part of names, unless empty
	open   []openDir
}

// openDir is a directory that gets its mode and time once its contents are complete.
type openDir struct {
	name string
	f    *os.File
	e    agentv1.Entry
}

// destination opens the tree's destination.
func (u *unpacker) destination(root *os.File, r agentv1.Unpack) (err error) {
	if r.Path == "" || len(r.Path) > agentv1.MaxName {
		return fmt.Errorf("path %.80q: %w", r.Path, errdefs.ErrInvalidArgument)
	}
	u.dest, err = InRoot(root, r.Path, unix.O_DIRECTORY)
	if err == nil {
		return nil
	}
	if r.Into || strings.HasSuffix(r.Path, "/") || strings.HasSuffix(r.Path, "/.") {
		return fmt.Errorf("%s is not a directory of the container: %w", r.Path, err)
	}
	parent, base := path.Split(strings.TrimRight(r.Path, "/"))
	if base == ".." {
		return err
	}
	if parent == "" {
		parent = "/"
	}
	if u.dest, err = InRoot(root, parent, unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("%s is not a directory of the container: %w", parent, err)
	}
	u.rename = base
	return nil
}

func (u *unpacker) run() error {
	defer func() {
		for _, d := range u.open {
			d.f.Close()
		}
	}()
	for {
		e, err := agentv1.ReadEntry(u.r)
		if err != nil {
			return err
		}
		if e.Kind == agentv1.KindEnd {
			return u.closeDirs("")
		}
		name, err := u.place(e.Name)
		if err == nil {
			err = u.closeDirs(name)
		}
		if err == nil {
			err = u.extract(name, e)
		}
		if err != nil {
			return fmt.Errorf("%.200q: %w", e.Name, err)
		}
	}
}

// place returns the path of an entry below the destination; "." is the destination itself.
func (u *unpacker) place(raw []byte) (string, error) {
	name := path.Clean(string(raw))
	if len(raw) == 0 || name[0] == '/' || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "\x00") {
		return "", fmt.Errorf("the name must be relative: %w", errdefs.ErrInvalidArgument)
	}
	if strings.Count(name, "/") > maxDepth {
		return "", fmt.Errorf("it is nested too deep: %w", errdefs.ErrInvalidArgument)
	}
	if u.rename == "" {
		return name, nil
	}
	if string(raw) == "." || strings.HasPrefix(string(raw), "./") {
		return path.Join(u.rename, name), nil
	}
	_, rest, _ := strings.Cut(name, "/")
	return path.Join(u.rename, rest), nil
}

func (u *unpacker) extract(name string, e agentv1.Entry) error {
	if name == "." || e.Kind == agentv1.KindSkipped {
		return nil // the destination stays unchanged
	}
	parent, err := u.parent(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	base := path.Base(name)
	switch e.Kind {
	case agentv1.KindDir:
		return u.dir(parent, name, e)
	case agentv1.KindFile:
		return u.file(parent, base, e)
	case agentv1.KindSymlink:
		return u.replace(parent, base, func() error {
			if err := unix.Symlinkat(string(e.Target), int(parent.Fd()), base); err != nil {
				return err
			}
			if err := unix.Fchownat(int(parent.Fd()), base, u.owner[0], u.owner[1], unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err
			}
			return setTime(int(parent.Fd()), base, e.MTime, unix.AT_SYMLINK_NOFOLLOW)
		})
	case agentv1.KindLink:
		return u.link(parent, base, e)
	}
	return fmt.Errorf("entry of kind %.32q: %w", e.Kind, errdefs.ErrInvalidArgument)
}

// within opens a path below the destination, and follows no symbolic link.
func (u *unpacker) within(name string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(u.dest.Fd()), name, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link or below one: %w", name, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// parent opens a directory below the destination, and creates missing ones.
func (u *unpacker) parent(name string) (*os.File, error) {
	f, err := u.within(name, unix.O_PATH|unix.O_DIRECTORY)
	if !errors.Is(err, os.ErrNotExist) || name == "." {
		return f, err
	}
	above, err := u.parent(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if err := unix.Mkdirat(int(above.Fd()), path.Base(name), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	if f, err = u.within(name, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
		err = f.Chown(u.owner[0], u.owner[1])
	}
	return f, err
}

func (u *unpacker) dir(parent *os.File, name string, e agentv1.Entry) error {
	err := unix.Mkdirat(int(parent.Fd()), path.Base(name), 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	f, err := u.within(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	if made {
		if err := f.Chown(u.owner[0], u.owner[1]); err != nil {
			f.Close()
			return err
		}
	}
	u.open = append(u.open, openDir{name, f, e})
	return nil
}

// closeDirs finishes the open directories that do not contain next.
func (u *unpacker) closeDirs(next string) error {
	for len(u.open) > 0 {
		d := u.open[len(u.open)-1]
		if strings.HasPrefix(next, d.name+"/") {
			return nil
		}
		u.open = u.open[:len(u.open)-1]
		err := unix.Fchmod(int(d.f.Fd()), d.e.Mode&0o7777)
		if err == nil {
			err = setTime(int(d.f.Fd()), "", d.e.MTime, unix.AT_EMPTY_PATH)
		}
		d.f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// replace creates a file in place of an existing one.
func (u *unpacker) replace(parent *os.File, base string, create func() error) error {
	err := create()
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := unix.Unlinkat(int(parent.Fd()), base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		if errors.Is(err, unix.EISDIR) {
			return fmt.Errorf("a directory is in its place: %w", errdefs.ErrAlreadyExists)
		}
		return err
	}
	return create()
}

func (u *unpacker) file(parent *os.File, base string, e agentv1.Entry) error {
	fd := -1
	err := u.replace(parent, base, func() (err error) {
		fd, err = unix.Openat(int(parent.Fd()), base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if errors.Is(err, unix.EBUSY) { // a mount point such as /etc/hosts: overwrite it
		fd, err = unix.Openat(int(parent.Fd()), base, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	if _, err := io.CopyN(f, u.r, e.Size); err != nil {
		return err
	}
	if err := unix.Fchown(fd, u.owner[0], u.owner[1]); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, e.Mode&0o7777); err != nil {
		return err
	}
	return setTime(fd, "", e.MTime, unix.AT_EMPTY_PATH)
}

// link creates another name for an earlier file.
func (u *unpacker) link(parent *os.File, base string, e agentv1.Entry) error {
	old, err := u.place(e.Target)
	if err != nil {
		return err
	}
	from, err := u.within(path.Dir(old), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer from.Close()
	return u.replace(parent, base, func() error {
		return unix.Linkat(int(from.Fd()), path.Base(old), int(parent.Fd()), base, 0)
	})
}

func setTime(fd int, name string, mtime int64, flags int) error {
	t := unix.NsecToTimespec(mtime)
	return unix.UtimesNanoAt(fd, name, []unix.Timespec{t, t}, flags)
}
