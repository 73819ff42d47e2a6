package named

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// turnWait bounds the wait for another process that creates or removes a volume.
const turnWait = time.Minute

// turn locks the store for creating, removing or growing volumes, until done.
func (s *Store) turn(ctx context.Context) (done func() error, err error) {
	if err := dirs.Ensure(s.dir, 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	lock, err := flock.Acquire(ctx, filepath.Join(s.dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("wait for another process to finish its change of volumes: %w", err)
	}
	return lock.Unlock, nil
}

// Create creates a volume, with DefaultSize if v.Bytes is 0. It returns an existing volume with ErrExists. Other
// errors: ErrName, ErrSize, ErrInvalid, and the error of a missing mkfs.ext4.
func (s *Store) Create(ctx context.Context, v Volume) (made Volume, err error) {
	if err := v.check(); err != nil {
		return Volume{}, err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return Volume{}, err
	}
	defer func() { err = errors.Join(err, done()) }()
	old, err := s.Get(v.Name)
	switch {
	case err == nil:
		return old, fmt.Errorf("volume %s: %w", v.Name, ErrExists)
	case !errors.Is(err, ErrNotFound):
		return Volume{}, err
	}
	v.Created = time.Now().UTC().Truncate(time.Second)
	if err := s.create(ctx, v); err != nil {
		return Volume{}, fmt.Errorf("create volume %s: %w", v.Name, errors.Join(err, os.RemoveAll(s.Dir(makingDir))))
	}
	return s.Get(v.Name)
}

func (s *Store) create(ctx context.Context, v Volume) error {
	dir := s.Dir(makingDir)
	if err := os.RemoveAll(dir); err != nil { // left by a killed process
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	fault.Point("volume.begun")
	if err := fill(ctx, dir, v); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(filepath.Join(dir, recordFile), v, 0o600, atomicfile.Durable); err != nil {
		return err
	}
	fault.Point("volume.made")
	if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, s.Dir(v.Name), unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	fault.Point("volume.named")
	return atomicfile.SyncDir(s.dir)
}

// fill creates the volume's directory or disk.
func fill(ctx context.Context, dir string, v Volume) error {
	switch v.Kind {
	case Shared:
		files := filepath.Join(dir, filesDir)
		if err := os.Mkdir(files, 0o700); err != nil {
			return err
		}
		return os.Chmod(files, 0o777) // like an emptyDir, for all users of a pod
	case Disk:
		return scratch.CreateVolume(ctx, filepath.Join(dir, diskFile), v.Bytes)
	}
	f, err := os.OpenFile(filepath.Join(dir, diskFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(v.Bytes), f.Sync(), f.Close())
}

// Remove removes a volume: ErrNotFound, and ErrInUse if a VM has its disk. For a Shared volume the caller must know
// whether a pod uses it. When Remove returns, the volume is gone. The caller then calls rest to delete the content,
// which may take long and ends with its ctx. Reap deletes what rest does not.
func (s *Store) Remove(ctx context.Context, name string) (rest func(ctx context.Context) error, err error) {
	gone, err := s.setAside(ctx, name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := guesttree.Remove(ctx, gone); err != nil {
			return fmt.Errorf("delete the content of volume %s: %w", name, err)
		}
		return nil
	}, nil
}

// setAside renames a volume to a nameless directory, which it returns.
func (s *Store) setAside(ctx context.Context, name string) (gone string, err error) {
	if err := Check(name); err != nil {
		return "", err
	}
	done, err := s.turn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	if _, err := s.Get(name); err != nil {
		return "", err
	}
	disk, err := s.hold(name)
	if err != nil {
		return "", err
	}
	if disk != nil {
		defer disk.Close()
	}
	parent, err := os.MkdirTemp(s.dir, gonePrefix)
	if err != nil {
		return "", fmt.Errorf("remove volume %s: %w", name, err)
	}
	if err := os.Rename(s.Dir(name), filepath.Join(parent, name)); err != nil {
		return "", fmt.Errorf("remove volume %s: %w", name, errors.Join(err, os.Remove(parent)))
	}
	fault.Point("volume.renamed")
	if err := atomicfile.SyncDir(s.dir); err != nil {
		return "", fmt.Errorf("remove volume %s: %w", name, err)
	}
	return parent, nil
}

// hold locks a volume's disk until the file is closed, so that no VM gets it: ErrInUse. It returns nil for a volume
// without a disk.
func (s *Store) hold(name string) (*os.File, error) {
	f, err := os.OpenFile(s.Image(name), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	return f, nil
}

// Grow grows a volume that no VM has. Its file system grows at the next mount. Volumes never shrink: ErrSize. Other
// errors: ErrNotFound, ErrInUse.
func (s *Store) Grow(ctx context.Context, name string, bytes int64) (v Volume, err error) {
	done, err := s.turn(ctx)
	if err != nil {
		return Volume{}, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if v, err = s.Growable(name, bytes); err != nil || v.Kind == Shared && v.Bytes == bytes {
		return v, err
	}
	if v.Kind == Shared {
		v.Bytes = bytes
		return v, atomicfile.WriteJSON(filepath.Join(s.Dir(name), recordFile), v, 0o600, atomicfile.Durable)
	}
	disk, err := s.hold(name)
	if err != nil {
		return Volume{}, err
	}
	defer disk.Close()
	v.Bytes = scratch.Rounded(bytes)
	if err := errors.Join(disk.Truncate(v.Bytes), disk.Sync()); err != nil {
		return Volume{}, fmt.Errorf("grow volume %s: %w", name, err)
	}
	return v, nil
}

// Growable returns the volume if it may grow to this size: ErrNotFound, ErrSize, ErrInvalid.
func (s *Store) Growable(name string, bytes int64) (Volume, error) {
	v, err := s.Get(name)
	switch {
	case err != nil:
		return v, err
	case v.Damage != "":
		return v, fmt.Errorf("volume %s is damaged: %w: %s", name, ErrInvalid, v.Damage)
	case bytes < v.Bytes && (v.Kind == Shared || scratch.Rounded(bytes) < v.Bytes):
		return v, fmt.Errorf("volume %s: %w: it has %d bytes, and volumes do not shrink", name, ErrSize, v.Bytes)
	case v.Kind != Shared && bytes > scratch.MaxSize:
		return v, fmt.Errorf("volume %s: %w: %d bytes, at most %d", name, ErrSize, bytes, int64(scratch.MaxSize))
	}
	return v, nil
}

// Reap deletes the remains of killed processes that created or removed volumes. It does nothing while another
// process has the lock, and stops when ctx ends.
func (s *Store) Reap(ctx context.Context) error {
	if _, err := os.Lstat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := flock.Try(filepath.Join(s.dir, lockFile))
	if errors.Is(err, flock.ErrLocked) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reap volumes: %w", err)
	}
	entries, err := os.ReadDir(s.dir)
	err = errors.Join(err, os.RemoveAll(s.Dir(makingDir)), lock.Unlock())
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), gonePrefix) {
			err = errors.Join(err, guesttree.Remove(ctx, s.Dir(e.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("reap volumes: %w", err)
	}
	return nil
}
