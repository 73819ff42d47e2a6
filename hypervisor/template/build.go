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

// Guest has the functions that know the templates' guest.
type Guest struct {
	// Ready waits until a freshly booted VM has reached the state that all clones start from. No untrusted code may
	// have run in its guest. Its error matches ErrUnfit if this VM must not be cloned but another one may be fit.
	Ready func(ctx context.Context, v hypervisor.VM) error
	// Answer returns when a clone has answered its first host.
	Answer func(ctx context.Context, v hypervisor.VM) error
}

// Ensure opens m's template with its memory filled. It builds the template if it is missing or damaged, and returns
// why; why is nil if it was usable. ctx needs a deadline.
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
		why = short // without the key, which is shown beside it
	}
	t, err = s.Build(ctx, m, g, why.Error())
	return t, why, err
}

// tries is the most VMs that are booted for one template.
const tries = 4

// Build boots m, waits for g.Ready, saves the VM, and proves the template by a clone. It waits for another process that
// builds the same template, and returns that one. A whole template that exists already is kept. ctx needs a deadline.
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
	// Only under the lock is it certain that these files are a dead builder's.
	if err := s.clear(ctx, key); err != nil {
		return nil, fmt.Errorf("build template %s: clear up after another: %w", key, err)
	}
	last, err := s.verdict(key)
	if err != nil {
		return nil, fmt.Errorf("build template %s: %w", key, err)
	}
	info := Info{Format: format, Key: key, VM: m, Reason: reason, Condemned: last.Count, Built: time.Now().UTC()}
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

// build tries once to build the template that info describes.
func (s *Store) build(ctx context.Context, info Info, g Guest) (_ *Template, err error) {
	key, tmp := info.Key, s.tmpPath(info.Key)
	if err := enoughSpace(s.dir, int64(info.VM.Memory)<<20); err != nil {
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

// save boots a VM and saves it in the temporary directory, synced and described in info. It returns the time that the
// VM needed to be ready.
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
	if err := memory.Truncate(int64(info.VM.Memory) << 20); err != nil {
		return 0, err
	}
	began := time.Now()
	v, err := s.driver.Boot(ctx, info.VM, hypervisor.Files{Memory: memory, Console: console}, s.options(info.Key, "template"))
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
	if err = errors.Join(err, kill(ctx, v)); err != nil {
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

// kill kills a VM of the store, even if ctx has ended.
func kill(ctx context.Context, v hypervisor.VM) error {
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

// enoughSpace returns an error if the disk is too full for the guest's memory. A VM that finds no space for a page is
// killed by SIGBUS.
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
