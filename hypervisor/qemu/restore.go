package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu/qmp"
)

// maxState bounds a saved device state, in bytes; an honest one has half a million.
const maxState = 64 << 20

// stateName is the name under which QEMU keeps the descriptor of the state.
const stateName = "state"

type capability struct {
	Name  string `json:"capability"`
	State bool   `json:"state"`
}

// migration sets the capabilities for save and restore: the memory file is not part of the stream, and events report
// progress.
func (v *vm) migration(ctx context.Context) error {
	return v.qmp.Execute(ctx, "migrate-set-capabilities", map[string]any{
		"capabilities": []capability{{"x-ignore-shared", true}, {"events", true}},
	}, nil)
}

// restore loads the state and starts the virtual CPUs.
func (v *vm) restore(ctx context.Context, state *os.File) error {
	began := time.Now()
	mine, err := private(state)
	if err != nil {
		return v.failed("restore", "read the saved state", err)
	}
	defer mine.Close()
	sub := v.qmp.Subscribe("MIGRATION")
	defer sub.Cancel()
	err = v.migration(ctx)
	if err == nil {
		err = v.qmp.ExecuteFile(ctx, "getfd", map[string]any{"fdname": stateName}, nil, mine)
	}
	if err == nil {
		err = v.qmp.Execute(ctx, "migrate-incoming", map[string]any{"uri": "fd:" + stateName}, nil)
	}
	if err == nil {
		err = migrated(ctx, sub)
	}
	if err != nil {
		return v.failed("restore", "restore the VM", v.deathOr(err))
	}
	v.timed("restore", &began)
	if err := v.Resume(ctx); err != nil {
		return err
	}
	v.timed("cont", &began)
	return nil
}

// migrated waits for the end of a migration in either direction.
func migrated(ctx context.Context, sub *qmp.Subscription) error {
	for {
		e, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		var data struct {
			Status string `json:"status"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return fmt.Errorf("%w: %w", qmp.ErrProtocol, err)
		}
		switch data.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return errors.New("migration " + data.Status)
		}
	}
}

// private copies a state into a memfd of its own. Clones that start concurrently would share the offset of one file,
// and a compromised one could write it.
func private(state *os.File) (*os.File, error) {
	fd, err := unix.MemfdCreate("bulkhead-state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:state")
	n, err := io.Copy(f, io.NewSectionReader(state, 0, maxState+1))
	if err == nil && (n == 0 || n > maxState) {
		err = fmt.Errorf("%w: a state of %d bytes", hypervisor.ErrInvalid, n)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
