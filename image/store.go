// Package image keeps container images as read-only EROFS disks. It pulls them from registries and archives with the
// common library and conventions, converts each once, and removes it with its last reference.
//
// A store lies in one directory, which any number of processes use concurrently:
//
//	<id>/            disk.erofs, config.json, meta.json: complete, never changed
//	refs/<instance>/ one file per name, with the id of its image
//	pins/<id>/       one file per holder, while a sandbox uses the disk
//	tmp/             unfinished files, each under a lock of its own
//	lock             held for moments, while refs, pins and <id> change
package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

const (
	configFile = "config.json"
	metaFile   = "meta.json"
	lockWait   = 30 * time.Second
)

// Store is one instance's view of the images of a user. It is safe for concurrent use, and other processes may use the
// same directory.
type Store struct {
	root       string
	instance   string
	flights    *flights
	rooms      *rooms
	converters *converterSlots
	getenv     Getenv
}

var instanceName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Open opens the store in roots, and creates it if it is missing. The instance ("run", "cri", …) will own the
// references made through it. Open removes the remains of killed processes.
func Open(roots dirs.Roots, instance string) (*Store, error) {
	if !instanceName.MatchString(instance) {
		return nil, fmt.Errorf("open image store: %w: instance %q", ErrInvalid, instance)
	}
	s := &Store{root: roots.Images(), instance: instance, flights: &flights{}, getenv: os.Getenv}
	for _, dir := range []string{s.root, s.path("refs"), s.path("pins"), s.path("tmp"), s.path("converters"), s.path("refs", instance)} {
		if err := dirs.Ensure(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open image store: %w", err)
		}
	}
	s.rooms, s.converters = newRooms(s.root), newConverters(s.path("converters"))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	err := s.locked(ctx, func() error { return errors.Join(s.reap(), s.collectAll()) })
	if err != nil {
		return nil, fmt.Errorf("open image store %s: %w", s.root, err)
	}
	return s, nil
}

// With returns the same store for a caller with another environment than this process.
func (s *Store) With(getenv Getenv) *Store {
	own := *s
	own.getenv = getenv
	return &own
}

// For returns the store with the references of another instance. That instance may not have run yet.
func (s *Store) For(instance string) (*Store, error) {
	if !instanceName.MatchString(instance) {
		return nil, fmt.Errorf("%w: instance %q", ErrInvalid, instance)
	}
	own := *s
	own.instance, own.flights = instance, &flights{} // the result of a flight is a reference
	if err := dirs.Ensure(own.path("refs", instance), 0o700); err != nil {
		return nil, fmt.Errorf("image store of instance %s: %w", instance, err)
	}
	return &own, nil
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.root}, parts...)...)
}

// locked runs f while no other process changes the store.
func (s *Store) locked(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	l, err := flock.Acquire(ctx, s.path("lock"))
	if err != nil {
		return err
	}
	return errors.Join(f(), l.Unlock())
}

// stage is a directory in tmp that lives no longer than its maker.
type stage struct {
	dir  string
	lock *flock.Lock
}

func (s *Store) newStage() (*stage, error) {
	// The lock file is created first, and locked, so that the directory always has one.
	f, err := os.CreateTemp(s.path("tmp"), "*.lock")
	if err != nil {
		return nil, err
	}
	f.Close()
	// A reaper may hold it for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	l, err := flock.Acquire(ctx, f.Name())
	if err != nil {
		return nil, err
	}
	st := &stage{dir: f.Name()[:len(f.Name())-len(".lock")], lock: l}
	if err := os.Mkdir(st.dir, 0o700); err != nil {
		return nil, errors.Join(err, st.remove())
	}
	return st, nil
}

// remove is called once, whether or not the stage was published.
func (st *stage) remove() error {
	return errors.Join(os.RemoveAll(st.dir), os.Remove(st.dir+".lock"), st.lock.Unlock())
}

// reap removes the stages of processes that have ended.
func (s *Store) reap() error {
	entries, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := s.path("tmp", e.Name())
		ext := filepath.Ext(name)
		if ext == goneExt {
			if err := os.RemoveAll(name); err != nil {
				return err
			}
			continue
		}
		if ext != ".lock" && !strings.HasPrefix(e.Name(), convertPrefix) {
			continue
		}
		l, err := flock.Try(name)
		if errors.Is(err, flock.ErrLocked) {
			continue
		}
		if err != nil {
			return err
		}
		st := stage{dir: strings.TrimSuffix(name, ".lock"), lock: l}
		if ext == "" {
			if err := errors.Join(os.Remove(name), l.Unlock()); err != nil {
				return err
			}
			continue
		}
		if err := st.remove(); err != nil {
			return err
		}
	}
	return nil
}

// publish publishes the stage's image under id, unless it exists already. The caller holds the store's lock.
func (s *Store) publish(st *stage, id string) error {
	_, err := os.Stat(st.built())
	if s.exists(id) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := atomicfile.SyncDir(st.built()); err != nil {
		return err
	}
	if err := os.Rename(st.built(), s.path(id)); err != nil {
		return err
	}
	return atomicfile.SyncDir(s.root)
}

func (s *Store) exists(id string) bool {
	_, err := os.Stat(s.path(id, metaFile))
	return err == nil
}

// OpenDisk opens an image's disk for reading: a sparse file of slot.Size. The caller closes it, and must pin the image
// to keep it.
func (s *Store) OpenDisk(id string) (*os.File, error) {
	if !validID(id) {
		return nil, fmt.Errorf("image %.80q: %w", id, ErrNotFound)
	}
	f, err := os.Open(s.path(id, diskFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("image %s: %w", shortid.Of(id), ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", shortid.Of(id), err)
	}
	return f, nil
}

var fullID = regexp.MustCompile(`^[0-9a-f]{64}([0-9a-f]{64})?$`)

func validID(id string) bool { return fullID.MatchString(id) }
