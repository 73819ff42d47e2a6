package place

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// create creates the missing part of a path, below its last existing directory, and opens it.
func (r Rules) create(path string, kind Missing) (int, error) {
	dir, names, err := existing(path)
	if err != nil {
		return -1, err
	}
	if kind == MakeFile {
		defer unix.Close(dir)
		if len(names) != 1 {
			return -1, unix.ENOENT
		}
		return r.makeFile(dir, names[0], path)
	}
	for _, name := range names {
		next := -1
		if _, err = r.makeDir(dir, name, path); err == nil {
			next, err = openAt(dir, name, unix.O_PATH)
		}
		_ = unix.Close(dir)
		if err != nil {
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

// existing opens the last existing directory of a path, and returns the names after it.
func existing(path string) (dir int, names []string, err error) {
	for {
		path = strings.TrimRight(path, "/")
		cut := strings.LastIndexByte(path, '/')
		name := path[cut+1:]
		path = path[:cut+1]
		switch name {
		case "..": // of a missing directory
			return -1, nil, unix.ENOENT
		case "", ".":
		default:
			names = append([]string{name}, names...)
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.ENOENT) || path == "/" {
			return fd, names, err
		}
	}
}

// makeDir creates a directory in dir, if that is allowed there. An existing one is accepted.
func (r Rules) makeDir(dir int, name, path string) (made bool, err error) {
	if err := r.checkCreate(dir, name, path); err != nil {
		return false, err
	}
	err = unix.Mkdirat(dir, name, 0o755)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return err == nil, err
}

func (r Rules) makeFile(dir int, name, path string) (int, error) {
	if err := r.checkCreate(dir, name, path); err != nil {
		return -1, err
	}
	how := &unix.OpenHow{Flags: unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC, Mode: 0o644, Resolve: unix.RESOLVE_BENEATH}
	fd, err := unix.Openat2(dir, name, how)
	if err == nil {
		_ = unix.Close(fd)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return openAt(dir, name, unix.O_PATH)
}

// checkCreate returns an error if pods' files must not be created in dir.
func (r Rules) checkCreate(dir int, name, path string) error {
	parent, err := at(dir)
	if err == nil {
		var all []mount
		if all, err = mounts(); err == nil {
			_, err = r.check(filepath.Join(parent, name), path, all)
		}
	}
	return err
}

// openAt opens an entry of a directory, which must not be a link.
func openAt(dir int, name string, flags uint64) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}

// openPart opens a part of a directory, step by step: another user of the directory may change it meanwhile.
func (r Rules) openPart(dir int, part string, mayMake bool) (int, error) {
	if !filepath.IsLocal(part) {
		return -1, ErrPart
	}
	fd := -1
	names := strings.Split(filepath.Clean(part), "/")
	for i := range names {
		parent := fd
		var err error
		fd, err = r.stepInto(dir, parent, names[:i+1], mayMake)
		if parent >= 0 {
			_ = unix.Close(parent)
		}
		if err != nil {
			return -1, err
		}
	}
	return fd, nil
}

// stepInto opens the path names below dir. If it is missing and may be created, it creates the last name in parent.
func (r Rules) stepInto(dir, parent int, names []string, mayMake bool) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	path := strings.Join(names, "/")
	fd, err := unix.Openat2(dir, path, how)
	if !errors.Is(err, unix.ENOENT) || !mayMake {
		return fd, err
	}
	if parent < 0 {
		parent = dir
	}
	made, err := r.makeDir(parent, names[len(names)-1], path)
	if err != nil {
		return -1, err
	}
	if fd, err = unix.Openat2(dir, path, how); err != nil || !made {
		return fd, err
	}
	if err := sameMode(fd, dir); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sameMode gives a new directory the mode of its parent, as a kubelet does: users who may write to a volume may write
// to its parts.
func sameMode(fd, of int) error {
	var own, above unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &own), unix.Fstat(of, &above)); err != nil || own.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err // another process may have replaced it meanwhile
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), above.Mode&0o777)
}
