package qemu

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu/qmp"
)

// Adopt implements hypervisor.Driver. It may be called while the previous
// owner is dying: QEMU serves one QMP client at a time, and the new one waits
// for its greeting until then.
func (d Driver) Adopt(ctx context.Context, r hypervisor.Record, f hypervisor.Files) (hypervisor.VM, error) {
	v := &vm{record: r, console: newConsole(f.Console), done: make(chan struct{})}
	if !r.Process.Alive() {
		return nil, v.failed("connect", "adopt the machine", hypervisor.ErrGone)
	}
	v.stderr = openStderr(r.Process.PID)
	if err := v.connect(ctx); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// Watch implements hypervisor.Watcher: the monitor's socket ends with the
// process, also for a watcher that QEMU has not yet accepted.
func (d Driver) Watch(ctx context.Context, r hypervisor.Record) error {
	if !r.Process.Alive() {
		return nil
	}
	c, err := qmp.Dial(ctx, filepath.Join(r.Dir, monitorSocket))
	if err == nil {
		defer c.Close()
		select {
		case <-c.Done():
			err = c.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("watch the machine: %w", ctx.Err())
	}
	// The connection broke: the process has ended, or is about to.
	return r.Process.Wait(ctx)
}
