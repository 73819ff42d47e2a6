// Package atomicdir publishes a set of files in a directory atomically, in the kubelet's layout for volumes of
// ConfigMaps and Secrets:
//
//	DIR/..2026_01_02_15_04_05.000000000/   the files of one set
//	DIR/..data -> ..2026_…                 renamed into place: the switch
//	DIR/KEY -> ..data/KEY                  the path for readers
//
// A reader that watches ..data sees one event for each new set. A reader that resolves it sees one complete set, never
// a mixture.
//
// All paths are resolved within the directory, so a symbolic link in it cannot lead outside.
package atomicdir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Data is the name of the link to the current set.
	Data    = "..data"
	newData = "..data_tmp"
	hidden  = ".."

	maxTries = 100
)

// ErrPath is matched by errors for a file's path that is empty, leaves the directory or conflicts with the layout.
var ErrPath = errors.New("not a path within a volume")

// File is one file of a set.
type File struct {
	Path     string // with slashes, relative
	Mode     fs.FileMode
	UID, GID int // 0 leaves it unset
	Data     []byte
}

// CheckPath returns an error that matches ErrPath if name is not valid for File.Path.
func CheckPath(name string) error {
	if name == "" || name != path.Clean(name) || !fs.ValidPath(name) || name == "." ||
		strings.HasPrefix(name, hidden) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("path %.200q: %w", name, ErrPath)
	}
	return nil
}

// Write publishes files as the directory's set, unless the set is already the same. It does not set owners. It is not
// safe for concurrent use on one directory.
func Write(dir *os.Root, files []File) (changed bool, err error) {
	if have, err := Read(dir, Limits{}); err == nil && same(have, files) {
		return false, nil
	}
	stage, err := Begin(dir, 0)
	if err != nil {
		return false, err
	}
	for _, file := range files {
		file.UID, file.GID = 0, 0
		if err := stage.Add(file); err != nil {
			return false, errors.Join(err, stage.Drop())
		}
	}
	return true, stage.Commit()
}

func same(a, b []File) bool {
	byPath := func(x, y File) int { return strings.Compare(x.Path, y.Path) }
	a, b = slices.SortedFunc(slices.Values(a), byPath), slices.SortedFunc(slices.Values(b), byPath)
	return slices.EqualFunc(a, b, func(x, y File) bool {
		return x.Path == y.Path && x.Mode == y.Mode && bytes.Equal(x.Data, y.Data)
	})
}

// Stage is a set that is being written. It is not safe for concurrent use.
type Stage struct {
	dir   *os.Root
	name  string
	group int
	tops  map[string]bool // first parts of the files' paths
	dirs  map[string]bool
}

// Begin starts a new set. A group other than 0 gets the directories, including dir, and later files in them, as fsGroup
// requires.
func Begin(dir *os.Root, group int) (*Stage, error) {
	for i := 0; ; i++ {
		s := &Stage{dir: dir, group: group, tops: map[string]bool{}, dirs: map[string]bool{}}
		s.name = hidden + time.Now().UTC().Format("2006_01_02_15_04_05.000000000")
		if i > 0 {
			s.name += "-" + strconv.Itoa(i) // within one tick of the clock
		}
		err := dir.Mkdir(s.name, 0o755)
		if errors.Is(err, fs.ErrExist) && i < maxTries {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("start a set of files: %w", err)
		}
		err = s.own(s.name)
		if err == nil && group != 0 {
			err = s.own(".")
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start a set of files: %w", err), s.Drop())
		}
		return s, nil
	}
}

// own sets a directory's mode, regardless of the umask, and its group.
func (s *Stage) own(name string) error {
	mode := fs.FileMode(0o755)
	if s.group != 0 {
		if err := s.dir.Chown(name, -1, s.group); err != nil {
			return err
		}
		mode |= fs.ModeSetgid
	}
	return s.dir.Chmod(name, mode)
}

// Add writes a file, and appends to an existing one.
func (s *Stage) Add(file File) (err error) {
	if err := CheckPath(file.Path); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", file.Path, err)
		}
	}()
	top, _, _ := strings.Cut(file.Path, "/")
	s.tops[top] = true
	for i, c := range file.Path {
		if part := file.Path[:i]; c == '/' && !s.dirs[part] {
			name := s.name + "/" + part
			if err := s.dir.Mkdir(name, 0o755); err != nil {
				return err
			}
			if err := s.own(name); err != nil {
				return err
			}
			s.dirs[part] = true
		}
	}
	name := s.name + "/" + file.Path
	f, err := s.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(file.Data); err != nil {
		return err
	}
	if file.UID != 0 || file.GID != 0 {
		if err := f.Chown(file.UID, file.GID); err != nil {
			return err
		}
	}
	return f.Chmod(file.Mode.Perm())
}

// Drop removes the set instead of publishing it.
func (s *Stage) Drop() error {
	if err := s.dir.RemoveAll(s.name); err != nil {
		return fmt.Errorf("remove an unpublished set of files: %w", err)
	}
	return nil
}

// Commit publishes the set and removes the previous one.
func (s *Stage) Commit() error {
	if err := s.commit(); err != nil {
		return errors.Join(fmt.Errorf("publish a set of files: %w", err), s.Drop())
	}
	if err := s.tidy(); err != nil {
		return fmt.Errorf("clear up after a set of files: %w", err)
	}
	return nil
}

func (s *Stage) commit() error {
	if err := s.dir.RemoveAll(newData); err != nil {
		return err
	}
	if err := s.dir.Symlink(s.name, newData); err != nil {
		return err
	}
	return s.dir.Rename(newData, Data)
}

// tidy creates the links of the new set, which is now current, and removes the remains of earlier sets.
func (s *Stage) tidy() error {
	entries, err := list(s.dir, ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == Data || name == s.name:
		case s.tops[name] && s.linked(name):
			delete(s.tops, name)
		default:
			if err := s.dir.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	for name := range s.tops {
		if err := s.dir.Symlink(Data+"/"+name, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) linked(name string) bool {
	to, err := s.dir.Readlink(name)
	return err == nil && to == Data+"/"+name
}

func list(dir *os.Root, name string) ([]fs.DirEntry, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// Limits bound a set to read; 0 means no limit.
type Limits struct {
	Bytes int64
	Files int
}

// ErrTooLarge is matched by errors for a set beyond its limits.
var ErrTooLarge = errors.New("too large for a volume of files")

// Read reads the current set, with its owners. It ignores entries other than directories and regular files. Without a
// set, the error matches fs.ErrNotExist.
func Read(dir *os.Root, limits Limits) ([]File, error) {
	name, err := dir.Readlink(Data)
	if err != nil {
		return nil, fmt.Errorf("find the current set: %w", err)
	}
	set, err := dir.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open the current set: %w", err)
	}
	defer set.Close()
	r := reader{set: set, limits: limits}
	if err := r.walk("."); err != nil {
		return nil, fmt.Errorf("read the current set: %w", err)
	}
	return r.files, nil
}

type reader struct {
	set    *os.Root
	limits Limits
	files  []File
	bytes  int64
}

func (r *reader) walk(at string) error {
	entries, err := list(r.set, at)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(at, entry.Name())
		switch {
		case entry.IsDir():
			err = r.walk(name)
		case entry.Type().IsRegular():
			err = r.file(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) file(name string) error {
	f, err := r.set.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var in io.Reader = f
	if r.limits.Bytes > 0 {
		in = io.LimitReader(f, r.limits.Bytes-r.bytes+1)
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	r.bytes += int64(len(data))
	if r.limits.Bytes > 0 && r.bytes > r.limits.Bytes || r.limits.Files > 0 && len(r.files) >= r.limits.Files {
		return fmt.Errorf("%w: more than %d bytes or %d files", ErrTooLarge, r.limits.Bytes, r.limits.Files)
	}
	file := File{Path: name, Mode: info.Mode().Perm(), Data: data}
	file.UID, file.GID = owner(info)
	r.files = append(r.files, file)
	return nil
}
