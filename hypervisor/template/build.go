package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/undo"
)

// Ready brings a freshly booted machine to the point from which all clones go
// on. No untrusted code may have run in its guest.
type Ready func(ctx context.Context, v hypervisor.VM) error

// Ensure opens m's template with its memory filled, and builds it if it is
// missing or damaged. Why says what the matter was, nil if nothing was. ctx
// needs a deadline.
func (s *Store) Ensure(ctx context.Context, m hypervisor.Machine, ready Ready) (t *Template, why, err error) {
	t, err = s.Get(ctx, m)
	if err == nil {
		if _, err = t.Memory(); err == nil {
			return t, nil, nil
		}
		t.Close()
	}
	if !errors.Is(err, ErrMiss) {
		return nil, nil, err
	}
	why = err
	if short := errors.Unwrap(err); errors.Is(short, ErrMiss) {
		why = short // without the key, which stands beside it wherever it is shown
	}
	t, err = s.Build(ctx, m, ready, why.Error())
	return t, why, err
}

// Build boots m, waits for ready, and saves it. It waits for another process
// that builds the same template, and takes what that has built. A template
// that is there already is kept if it is whole. ctx needs a deadline.
func (s *Store) Build(ctx context.Context, m hypervisor.Machine, ready Ready, reason string) (*Template, error) {
	key, err := s.Key(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("build a template: %w", err)
	}
	for _, dir := range []string{s.dir, s.sockets} {
		if err := dirs.Ensure(dir, 0o700); err != nil {
			return nil, fmt.Errorf("build template %s: %w", key, err)
		}
	}
	lock, err := flock.Acquire(ctx, s.lockPath(key))
	if err != nil {
		return nil, fmt.Errorf("build template %s: %w", key, err)
	}
	defer lock.Unlock()
	if t, err := s.whole(key); err == nil {
		return t, nil
	}
	// Only now, under the lock, is what lies here a dead builder's.
	if err := s.clear(ctx, key); err != nil {
		return nil, fmt.Errorf("build template %s: clear up after another: %w", key, err)
	}
	if err := s.build(ctx, key, m, ready, reason); err != nil {
		return nil, fmt.Errorf("build template %s: %w", key, err)
	}
	return s.whole(key)
}

// whole opens a template and fills its memory, which checks it.
func (s *Store) whole(key string) (*Template, error) {
	t, err := s.open(key)
	if err != nil {
		return nil, err
	}
	if _, err := t.Memory(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (s *Store) build(ctx context.Context, key string, m hypervisor.Machine, ready Ready, reason string) (err error) {
	began := time.Now()
	tmp := s.tmpPath(key)
	if err := enoughSpace(s.dir, int64(m.Memory)<<20); err != nil {
		return err
	}
	var undos undo.Stack
	defer undos.OnError(ctx, &err)
	undos.Push("temporary files", func(ctx context.Context) error { return s.clear(ctx, key) })
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Mkdir(s.socketPath(key), 0o700)); err != nil {
		return err
	}
	info := Info{Format: format, Key: key, Machine: m, Reason: reason, Built: began.UTC()}
	if err := s.save(ctx, key, m, ready, &info); err != nil {
		return err
	}
	info.Took = time.Since(began)
	if err := atomicfile.WriteJSON(filepath.Join(tmp, infoFile), info, 0o600, atomicfile.Durable); err != nil {
		return err
	}
	dir := filepath.Join(s.dir, key)
	if err := os.RemoveAll(dir); err != nil { // a damaged one
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncDir(s.dir), os.RemoveAll(s.socketPath(key)))
}

// save runs the machine and leaves its files in the temporary directory,
// synced and described in info.
func (s *Store) save(ctx context.Context, key string, m hypervisor.Machine, ready Ready, info *Info) (err error) {
	tmp := s.tmpPath(key)
	memory, err := os.OpenFile(filepath.Join(tmp, memoryFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer memory.Close()
	if err := memory.Truncate(int64(m.Memory) << 20); err != nil {
		return err
	}
	state, err := os.OpenFile(filepath.Join(tmp, stateFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer state.Close()
	console, err := os.OpenFile(filepath.Join(tmp, "console"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	v, err := s.driver.Boot(ctx, m, hypervisor.Files{Memory: memory, Console: console},
		hypervisor.Options{Dir: s.socketPath(key), Name: "template-" + key[:12]})
	if err != nil {
		return err
	}
	err = ready(ctx, v)
	if err != nil {
		err = v.Explain("wait for the template's guest", err)
	} else {
		err = v.Save(ctx, state)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err = errors.Join(err, v.Kill(end), v.Close()); err != nil {
		return err
	}
	if err := errors.Join(os.Remove(console.Name()), memory.Sync(), state.Sync()); err != nil {
		return err
	}
	return info.describe(memory, state)
}

func (i *Info) describe(memory, state *os.File) error {
	for f, c := range map[*os.File]*Content{memory: &i.Memory, state: &i.State} {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		c.Size = st.Size()
		if c.Sum, err = checksum(f, c.Size); err != nil {
			return err
		}
	}
	return nil
}

// enoughSpace refuses what would end with a machine killed by SIGBUS, when a
// page of its memory finds no place on the disk.
func enoughSpace(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf("%w: %d MiB needed in %s, %d MiB free", unix.ENOSPC, need>>20, dir, free>>20)
	}
	return nil
}

// Remove removes a template. It waits for one that is being built, and is
// content with one that is not there. Open Templates stay usable.
func (s *Store) Remove(ctx context.Context, key string) error {
	if !validKey.MatchString(key) {
		return fmt.Errorf("remove template %q: %w: not a key", key, fs.ErrInvalid)
	}
	if _, err := os.Lstat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := flock.Acquire(ctx, s.lockPath(key))
	if err != nil {
		return fmt.Errorf("remove template %s: %w", key, err)
	}
	defer lock.Unlock()
	if err := s.clear(ctx, key); err != nil {
		return fmt.Errorf("remove template %s: %w", key, err)
	}
	// Renamed first: a template that is half removed must not look whole.
	err = os.Rename(filepath.Join(s.dir, key), s.tmpPath(key))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, s.clear(ctx, key)); err != nil {
		return fmt.Errorf("remove template %s: %w", key, err)
	}
	return os.Remove(s.lockPath(key))
}

func (s *Store) lockPath(key string) string   { return filepath.Join(s.dir, "."+key+".lock") }
func (s *Store) tmpPath(key string) string    { return filepath.Join(s.dir, "."+key+".tmp") }
func (s *Store) socketPath(key string) string { return filepath.Join(s.sockets, key[:12]) }
