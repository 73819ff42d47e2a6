// Package template keeps saved VMs on disk. All other VMs are cloned from them.
//
// A template is a directory named by its key, with the guest's memory, the devices' state and template.json. Build
// works in a directory beside it, under a lock. It proves the template by a clone that answers, syncs it and renames it
// into place, so that a template under its own name is whole. If clones fail all the same, the template is condemned
// and built again. Clones map a sealed copy of the memory in RAM, which the engine with the Template owns: no clone can
// write the file.
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
	// ErrMiss is matched by Get's error when there is no usable template. The message has the reason.
	ErrMiss = errors.New("no template")
	// ErrDamaged is matched, beside ErrMiss, when a template exists but differs from the one that was built.
	ErrDamaged = errors.New("template is damaged")
	// ErrUnfit is matched by the error of a Guest's Ready for a VM that must not be cloned. Build then boots another
	// one.
	ErrUnfit = errors.New("not fit to be cloned")
)

// The files of a template.
const (
	memoryFile  = "memory"
	stateFile   = "state"
	infoFile    = "template.json"
	consoleFile = "console" // while the template is built
)

// Store is a directory of templates. It is safe for concurrent use, also by several processes.
type Store struct {
	dir     string
	sockets string
	driver  hypervisor.Driver
	hashes  hashes
}

// Open returns the store of r with the driver d. Templates lie in Data. The sockets of VMs for a build lie in State,
// where paths are short.
func Open(r dirs.Roots, d hypervisor.Driver) *Store {
	return &Store{dir: r.Templates(), sockets: filepath.Join(r.State, "t"), driver: d}
}

// Info describes a template.
type Info struct {
	Format int                 `json:"format"`
	Key    string              `json:"key"`
	VM     hypervisor.VMConfig `json:"machine"`
	// Reason is why it was built: the miss that preceded it, or a user's request.
	Reason string        `json:"reason"`
	Built  time.Time     `json:"built"`
	Took   time.Duration `json:"took"`
	// Tries is the number of VMs that were booted for it. The last one was fit.
	Tries int `json:"tries"`
	// Answered is the time from the start of the clone that proved it to the guest's answer.
	Answered time.Duration `json:"answered"`
	// Condemned is the number of templates of this key that were condemned before.
	Condemned int `json:"condemned,omitempty"`
	// Memory and State describe the files.
	Memory Content `json:"memory"`
	State  Content `json:"state"`
	// Disk is the space on disk, in bytes; List measures it.
	Disk int64 `json:"-"`
}

// Content is a file's size in bytes and a sum of the parts that are not zero. The sum finds damage. It does not protect
// against users who may write the store.
type Content struct {
	Size int64  `json:"size"`
	Sum  uint32 `json:"crc32c"`
}

// Get opens m's template. If there is none, the error matches ErrMiss and has the reason; other errors concern m or the
// disk. The caller closes the Template.
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

// missing returns the error for a missing template: the first one ever, a condemned one, or a new kind.
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

// Has reports whether a template exists, whole or damaged.
func (s *Store) Has(key string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, key))
	return err == nil
}

// List describes all templates, oldest first. A damaged one has only a key, its size on disk, and the damage as its
// reason.
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
