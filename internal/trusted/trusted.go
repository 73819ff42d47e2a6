// Package trusted checks files and directories that grant power over the host to anyone who can change them:
// configuration, keys, static pods. They must belong to root or to the caller, and no other user may write them. The
// checks use open descriptors, so a file cannot be exchanged afterwards.
package trusted

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUntrusted is matched by the errors for files that another user may change.
var ErrUntrusted = errors.New("another user may change it")

// The bits of a mode that let others write.
const (
	groupWrites = 0o020
	otherWrites = 0o002
)

// Check checks an open file or directory. The error matches ErrUntrusted and has a remedy.
func Check(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: its owner is unknown", f.Name())
	}
	switch mode := info.Mode().Perm(); {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s: %w: it belongs to user %d (chown root %s)", f.Name(), ErrUntrusted, st.Uid, f.Name())
	case mode&otherWrites != 0, mode&groupWrites != 0 && (st.Gid != 0 || hasACL(f)):
		return fmt.Errorf("%s: %w: other users may write it, mode %04o (chmod go-w %s)", f.Name(), ErrUntrusted, mode, f.Name())
	}
	return nil
}

// hasACL reports whether the group bits of a file's mode cover more than its group.
func hasACL(f *os.File) bool {
	_, err := unix.Fgetxattr(int(f.Fd()), "system.posix_acl_access", nil)
	return err == nil
}

// Dir opens a directory and checks it.
func Dir(path string) (*os.File, error) {
	d, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := Check(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// At opens a file of an open directory and checks it. A link is an error, and so is a name with a slash. It returns nil
// for a file that is not regular.
func At(dir *os.File, name string) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	if filepath.Base(name) != name {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrInvalid}
	}
	// A pipe would block.
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: %w: it is a link (put the file itself there)", path, ErrUntrusted)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return regular(os.NewFile(uintptr(fd), path))
}

// Open opens a file, and checks it and the directory of its name. It follows links to a trusted file. A file that is
// not regular is an error.
func Open(path string) (*os.File, error) {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := checkParent(d); err != nil {
		return nil, err
	}
	opened, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f, err := regular(opened)
	if err == nil && f == nil {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	return f, err
}

// checkParent checks the directory of a checked file. In a sticky directory other users cannot replace the file.
func checkParent(d *os.File) error {
	info, err := d.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	return Check(d)
}

// regular checks an open file, and closes it if it is not regular.
func regular(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return nil, f.Close()
	}
	if err == nil {
		err = Check(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read reads a file that Open trusts, of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return data, nil
}

// Files checks files like Open, for programs that read them by their names. It skips empty names.
func Files(paths ...string) error {
	for _, path := range paths {
		if path == "" {
			continue
		}
		f, err := Open(path)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}
