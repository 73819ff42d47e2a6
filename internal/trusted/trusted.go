// Package trusted judges files and directories that grant power over the host to whoever can change them: configuration,
// keys, static pods. They must belong to root or to the caller, and nobody else may write them. The checks are on open
// descriptors, so a file cannot be exchanged after it was judged.
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

// ErrUntrusted is matched by the errors of what somebody else may change.
var ErrUntrusted = errors.New("another user may change it")

// The bits of a mode that let others write.
const (
	groupWrites = 0o020
	otherWrites = 0o002
)

// Check judges an open file or directory. The error matches ErrUntrusted and says what to do.
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

// hasACL tells whether the group's bits of a file's mode stand for more than its group.
func hasACL(f *os.File) bool {
	_, err := unix.Fgetxattr(int(f.Fd()), "system.posix_acl_access", nil)
	return err == nil
}

// Dir opens a directory and judges it.
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

// At opens a file of an open directory and judges it. A link is an error, and so is a name with a slash. A file that is
// not regular is nil.
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

// Open opens a file and judges it, and the directory of its name. Links to a trusted file are followed. A file that is not
// regular is an error.
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

// checkParent judges the directory of a file that is judged itself: where it is sticky, others cannot replace the file.
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

// regular judges a file that was opened, and closes what is not regular.
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

// Files judges files as Open does, for programs that read them by their names. Empty names are left out.
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
