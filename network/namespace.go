package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// namespace is the network namespace that an instance's VMs share. It outlives the engine: two processes hold it, and
// their identities are stored on disk.
type namespace struct {
	dir     string
	mu      sync.Mutex
	watcher *watcher // of the host's addresses; nil before ensure and after release
}

// record names the processes behind the namespace.
type record struct {
	Pasta  procid.ID `json:"pasta"`  // moves the packets, and leads a process group
	Holder procid.ID `json:"holder"` // runs in the namespaces: Pasta's child, unknown while Pasta starts
	// OwnUser means that the caller is not root and must join a user namespace too.
	OwnUser bool `json:"ownUser"`
	// Closed are the host's addresses that the namespace's processes cannot reach.
	Closed []string `json:"closed"`
}

func (n *namespace) path() string { return filepath.Join(n.dir, "namespace.json") }

// earlier returns the path of the record of a namespace that an earlier version has created, which does not close the
// host's addresses. Its pods keep it until release.
func (n *namespace) earlier() string { return filepath.Join(n.dir, "netns.json") }

// ensure returns the namespace, and creates it if needed. From then on, until release, new addresses of the host are
// closed to it.
func (n *namespace) ensure(ctx context.Context) (record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lock, err := flock.Acquire(ctx, filepath.Join(n.dir, "netns.lock"))
	if err != nil {
		return record{}, fmt.Errorf("create the pods' network namespace: %w", err)
	}
	defer lock.Unlock()
	if n.watcher == nil { // before the addresses are read, so that no change is missed
		if n.watcher, err = watch(n.refresh); err != nil {
			return record{}, fmt.Errorf("create the pods' network namespace: %w", err)
		}
	}
	r, err := read(n.path())
	if err != nil {
		return record{}, err
	}
	if r.alive() {
		return n.closeAddresses(ctx, r)
	}
	if err := killProcesses(ctx, n.path(), r); err != nil {
		return record{}, err
	}
	r, err = create(ctx, n.dir, n.write)
	if err == nil {
		err = n.write(r)
	}
	if err != nil {
		ctx, cancel := attaching(context.WithoutCancel(ctx))
		defer cancel()
		return record{}, errors.Join(fmt.Errorf("create the pods' network namespace: %w", err), killProcesses(ctx, n.path(), r))
	}
	return r, nil
}

// alive reports whether the namespace exists and is connected.
func (r record) alive() bool { return r.Holder.Alive() && r.Pasta.Alive() }

// refresh closes the host's present addresses, if there is a namespace.
func (n *namespace) refresh(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx, cancel := attaching(ctx)
	defer cancel()
	lock, err := flock.Acquire(ctx, filepath.Join(n.dir, "netns.lock"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	r, err := read(n.path())
	if err != nil || !r.alive() {
		return err
	}
	_, err = n.closeAddresses(ctx, r)
	return err
}

// closeAddresses updates the closed addresses of r. The caller holds the namespace's lock.
func (n *namespace) closeAddresses(ctx context.Context, r record) (record, error) {
	now, err := closeAddresses(ctx, r.Holder, r.Closed)
	if err != nil || slices.Equal(now, r.Closed) {
		return r, err
	}
	r.Closed = now
	return r, n.write(r)
}

func (n *namespace) write(r record) error {
	return atomicfile.WriteJSON(n.path(), r, 0o600, atomicfile.Volatile)
}

// read returns the record, or an empty one if there is none. A damaged record is an error: its processes would be lost.
func read(path string) (record, error) {
	var r record
	err := atomicfile.ReadJSON(path, &r)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return record{}, fmt.Errorf("find the pods' network namespace: %w", err)
	}
	return r, nil
}

// unwatch stops the watcher.
func (n *namespace) unwatch() {
	n.mu.Lock()
	w := n.watcher
	n.watcher = nil
	n.mu.Unlock()
	w.stop() // it may be waiting for mu
}

func (n *namespace) release(ctx context.Context) error {
	n.unwatch()
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx, cancel := attaching(ctx)
	defer cancel()
	lock, err := flock.Acquire(ctx, filepath.Join(n.dir, "netns.lock"))
	if err != nil {
		return fmt.Errorf("remove the pods' network namespace: %w", err)
	}
	defer lock.Unlock()
	var errs []error
	for _, path := range []string{n.path(), n.earlier()} {
		r, err := read(path)
		if err == nil {
			err = killProcesses(ctx, path, r)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// killProcesses kills the processes of a record, and removes the record.
func killProcesses(ctx context.Context, path string, r record) error {
	var errs []error
	for _, id := range []procid.ID{r.Pasta, r.Holder} {
		if id.PID == 0 {
			continue
		}
		if err := id.KillGroup(); err != nil && !errors.Is(err, procid.ErrGone) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, reap(ctx, id))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the pods' network namespace: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the record of the pods' network namespace: %w", err)
	}
	return nil
}

// reap waits for the end of a process, which may be a child of this process.
func reap(ctx context.Context, id procid.ID) error {
	if err := id.Wait(ctx); err != nil {
		return err
	}
	var status syscall.WaitStatus
	_, err := syscall.Wait4(id.PID, &status, syscall.WNOHANG, nil)
	if errors.Is(err, syscall.ECHILD) {
		return nil // a child of another engine, or of init
	}
	return err
}
