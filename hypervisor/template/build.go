package template

import (
	"context"
	"errors"
	"fmt"
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

// Guest knows the guest of the templates.
type Guest struct {
	// Ready brings a freshly booted VM to the point from which all clones go
	// on. No untrusted code may have run in its guest. Its error matches
	// ErrUnfit if the VM must not be cloned and another one may be fit.
	Ready func(ctx context.Context, v hypervisor.VM) error
	// Answer returns when a clone has answered its first host.
	Answer func(ctx context.Context, v hypervisor.VM) error
}

// Ensure opens m's template with its memory filled, and builds it if it is
// missing or damaged. Why says what the matter was, nil if nothing was. ctx
// needs a deadline.
func (s *Store) Ensure(ctx context.Context, m hypervisor.VMConfig, g Guest) (t *Template, why, err error) {
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
	t, err = s.Build(ctx, m, g, why.Error())
	return t, why, err
}

// tries is how often a VM is booted for one that is fit to be cloned.
const tries = 4

// Build boots m, waits for g.Ready, saves the VM, and proves the template by a
// clone. It waits for another process that builds the same template, and takes
// what that has built. A template that is there already is kept if it is whole.
// ctx needs a deadline.
func (s *Store) Build(ctx context.Context, m hypervisor.VMConfig, g Guest, reason string) (*Template, error) {
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
	last, err := s.verdict(key)
	if err != nil {
		return nil, fmt.Errorf("build template %s: %w", key, err)
	}
	info := Info{Format: format, Key: key, Machine: m, Reason: reason, Condemned: last.Count, Built: time.Now().UTC()}
	for info.Tries = 1; ; info.Tries++ {
		t, err := s.build(ctx, info, g)
		if err == nil {
			return t, nil
		}
		if !errors.Is(err, ErrUnfit) || info.Tries == tries || ctx.Err() != nil {
			return nil, fmt.Errorf("build template %s: %w", key, err)
		}
	}
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

// build makes one try at the template that info describes.
func (s *Store) build(ctx context.Context, info Info, g Guest) (_ *Template, err error) {
	key, tmp := info.Key, s.tmpPath(info.Key)
	if err := enoughSpace(s.dir, int64(info.Machine.Memory)<<20); err != nil {
		return nil, err
	}
	var undos undo.Stack
	defer undos.OnError(ctx, &err)
	undos.Push("temporary files", func(ctx context.Context) error { return s.clear(ctx, key) })
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Mkdir(s.socketPath(key), 0o700)); err != nil {
		return nil, err
	}
	ready, err := s.save(ctx, g.Ready, &info)
	if err != nil {
		return nil, err
	}
	t := &Template{Info: info}
	undos.Push("open files", func(context.Context) error { return t.Close() })
	if err := t.openFiles(tmp); err != nil {
		return nil, err
	}
	if err := s.prove(ctx, t, g.Answer, ready); err != nil {
		return nil, err
	}
	t.Info.Took = time.Since(info.Built)
	if err := atomicfile.WriteJSON(filepath.Join(tmp, infoFile), t.Info, 0o600, atomicfile.Durable); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, key)
	if err := os.RemoveAll(dir); err != nil { // a damaged one
		return nil, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return nil, err
	}
	return t, errors.Join(atomicfile.SyncDir(s.dir), os.RemoveAll(s.socketPath(key)))
}

// save boots a VM and leaves its files in the temporary directory, synced and
// described in info. It returns how long the VM needed to be ready.
func (s *Store) save(ctx context.Context, ready func(context.Context, hypervisor.VM) error, info *Info) (time.Duration, error) {
	var files [3]*os.File
	for i, name := range []string{memoryFile, stateFile, consoleFile} {
		f, err := os.OpenFile(filepath.Join(s.tmpPath(info.Key), name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		files[i] = f
	}
	memory, state, console := files[0], files[1], files[2]
	if err := memory.Truncate(int64(info.Machine.Memory) << 20); err != nil {
		return 0, err
	}
	began := time.Now()
	v, err := s.driver.Boot(ctx, info.Machine, hypervisor.Files{Memory: memory, Console: console}, s.options(info.Key, "template"))
	if err != nil {
		return 0, err
	}
	err = ready(ctx, v)
	took := time.Since(began)
	if err != nil {
		err = v.Explain("wait for the template's guest", err)
	} else {
		err = v.Save(ctx, state)
	}
	if err = errors.Join(err, end(ctx, v)); err != nil {
		return 0, err
	}
	if err := errors.Join(memory.Sync(), state.Sync()); err != nil {
		return 0, err
	}
	return took, info.describe(memory, state)
}

func (s *Store) options(key, role string) hypervisor.Options {
	return hypervisor.Options{Dir: s.socketPath(key), Name: role + "-" + key[:12]}
}

// end ends a VM of the store's own, also when ctx has ended.
func end(ctx context.Context, v hypervisor.VM) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return errors.Join(v.Kill(ctx), v.Close())
}

// endTimeout bounds the death of a killed process.
const endTimeout = 10 * time.Second

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
