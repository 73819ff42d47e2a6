// Package template keeps saved machines on disk, from which all others are
// cloned.
//
// A template is a directory named by its key, with the guest's memory, the
// devices' state and template.json. It is built in a directory beside, under a
// lock, proven by a clone that answers, synced and renamed into place: what is
// there under its own name is whole. A template whose clones fail all the same
// is condemned, and built again. The memory that clones map is a sealed copy in RAM, for which the
// engine that holds the Template is answerable: no clone can write the file.
package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

var (
	// ErrMiss is matched by Get's error when there is no usable template;
	// the message says why.
	ErrMiss = errors.New("no template")
	// ErrDamaged is matched, beside ErrMiss, when a template was there and
	// is not what was built.
	ErrDamaged = errors.New("template is damaged")
	// ErrUnfit is matched by the error of a Guest's Ready for a VM that must
	// not be cloned. Build boots another one.
	ErrUnfit = errors.New("not fit to be cloned")
)

// The files of a template.
const (
	memoryFile  = "memory"
	stateFile   = "state"
	infoFile    = "template.json"
	consoleFile = "console" // while it is built
)

// Store is a directory of templates. It is safe for concurrent use, also by
// several processes.
type Store struct {
	dir     string
	sockets string
	driver  hypervisor.Driver
	hashes  hashes
}

// Open returns the store of r, made by d. Templates lie in Data; the sockets
// of one that is being built in State, where paths are short.
func Open(r dirs.Roots, d hypervisor.Driver) *Store {
	return &Store{dir: r.Templates(), sockets: filepath.Join(r.State, "t"), driver: d}
}

// Info describes a template.
type Info struct {
	Format  int                 `json:"format"`
	Key     string              `json:"key"`
	Machine hypervisor.VMConfig `json:"machine"`
	// Reason is why it was built: the miss that preceded it, or a user's wish.
	Reason string        `json:"reason"`
	Built  time.Time     `json:"built"`
	Took   time.Duration `json:"took"`
	// Tries is how many VMs were booted for it, the last of which was fit.
	Tries int `json:"tries"`
	// Answered is what the clone that proved it needed, from its start to its
	// guest's answer.
	Answered time.Duration `json:"answered"`
	// Condemned is how many templates of this key were condemned before.
	Condemned int `json:"condemned,omitempty"`
	// Memory and State are what the files must be.
	Memory Content `json:"memory"`
	State  Content `json:"state"`
	// Disk is the space that the template takes on disk, in bytes; List
	// measures it.
	Disk int64 `json:"-"`
}

// Content is a file's size in bytes and a sum of the parts that are not zero.
// The sum finds damage; it is no protection against somebody who may write
// the store.
type Content struct {
	Size int64  `json:"size"`
	Sum  uint32 `json:"crc32c"`
}

// Get opens m's template. Without one the error matches ErrMiss and says what
// is the matter; other errors are of the machine's description or the disk.
// The caller closes the Template.
func (s *Store) Get(ctx context.Context, m hypervisor.VMConfig) (*Template, error) {
	key, err := s.Key(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("find a template: %w", err)
	}
	return s.open(key)
}

func (s *Store) open(key string) (t *Template, err error) {
	dir := filepath.Join(s.dir, key)
	t = &Template{}
	defer func() {
		if err != nil {
			t.Close()
			t, err = nil, fmt.Errorf("find template %s: %w", key, err)
		}
	}()
	err = atomicfile.ReadJSON(filepath.Join(dir, infoFile), &t.Info)
	if errors.Is(err, fs.ErrNotExist) {
		return t, s.missing(key)
	}
	if err != nil {
		return t, damaged("%v", err)
	}
	if t.Info.Format != format || t.Info.Key != key {
		return t, damaged("template.json is of format %d and key %q", t.Info.Format, t.Info.Key)
	}
	if err = t.openFiles(dir); err != nil {
		return t, err
	}
	return t, t.checkState()
}

// missing says what kind of a miss this is: the first template ever, one that
// was condemned, or one more.
func (s *Store) missing(key string) error {
	if _, err := os.Lstat(filepath.Join(s.dir, key)); err == nil {
		return damaged("template.json is missing")
	}
	if v, err := s.verdict(key); err != nil || v.Count > 0 {
		return errors.Join(err, fmt.Errorf("%w: the last of %d was condemned: %s", ErrMiss, v.Count, v.Reason))
	}
	others, err := s.keys()
	if err != nil {
		return err
	}
	if len(others) == 0 {
		return fmt.Errorf("%w: none has been built yet", ErrMiss)
	}
	return fmt.Errorf("%w for this kind of VM, or its kernel, initrd or QEMU has changed (there are %d others)", ErrMiss, len(others))
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w: %s", ErrMiss, ErrDamaged, fmt.Sprintf(format, args...))
}

func openExact(path string, size int64) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, damaged("%v", err)
	}
	info, err := f.Stat()
	if err == nil && (info.Size() != size || !info.Mode().IsRegular()) {
		err = damaged("%s has %d bytes instead of %d", filepath.Base(path), info.Size(), size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

var validKey = regexp.MustCompile(`^[0-9a-f]{32}$`)

func (s *Store) keys() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var keys []string
	for _, e := range entries {
		if e.IsDir() && validKey.MatchString(e.Name()) {
			keys = append(keys, e.Name())
		}
	}
	return keys, nil
}

// Has tells whether there is a template, whole or damaged.
func (s *Store) Has(key string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, key))
	return err == nil
}

// List describes all templates, oldest first. A damaged one has nothing but a
// key, its size on disk, and the damage as its reason.
func (s *Store) List() ([]Info, error) {
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	var all []Info
	for _, key := range keys {
		dir := filepath.Join(s.dir, key)
		info := Info{Key: key}
		if err := atomicfile.ReadJSON(filepath.Join(dir, infoFile), &info); err != nil {
			info = Info{Key: key, Reason: "damaged: " + err.Error()}
		}
		info.Disk = diskUse(dir)
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b Info) int {
		if c := a.Built.Compare(b.Built); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
	return all, nil
}

func diskUse(dir string) int64 {
	var sum int64
	for _, name := range []string{memoryFile, stateFile, infoFile} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += st.Blocks * 512
			}
		}
	}
	return sum
}

func (s *Store) lockPath(key string) string    { return filepath.Join(s.dir, "."+key+".lock") }
func (s *Store) tmpPath(key string) string     { return filepath.Join(s.dir, "."+key+".tmp") }
func (s *Store) verdictPath(key string) string { return filepath.Join(s.dir, "."+key+".condemned") }

func (s *Store) socketPath(key string) string { return filepath.Join(s.sockets, key[:12]) }
