package enginetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/engine/parents"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// ParentsDisk is the beginning of the disks of the World's forks.
const ParentsDisk = "a parent's"

// Parents returns fake parents. Their calls are Fork, Want, Ready and FailedFork.
func (w *World) Parents(t testing.TB) kinds.Parents {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, []byte(ParentsDisk), 0o600); err != nil {
		t.Fatal(err)
	}
	return family{w, disk}
}

type family struct {
	w    *World
	disk string
}

func (f family) Fork(ctx context.Context, key parents.Key, c parents.Child) (r hypervisor.Record, err error) {
	from, err := os.Open(f.disk)
	if err != nil {
		return r, err
	}
	defer from.Close()
	own, err := c.Disk(from)
	if err != nil {
		return r, err
	}
	return hypervisor.Record{Dir: c.Dir, VM: key.VM}, errors.Join(own.Close(), f.w.call(ctx, "Fork"))
}

func (f family) Want(parents.Key) { _ = f.w.call(context.Background(), "Want") }

func (f family) Failed(parents.Key, time.Time) {
	_ = f.w.call(context.Background(), "FailedFork")
}

func (f family) Ready(ctx context.Context, _ parents.Key) error { return f.w.call(ctx, "Ready") }

func (f family) Close() error { return nil }
