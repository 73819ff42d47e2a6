package shim

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// copied is a VM that was copied for a shim. Without a record there is no copy, and the shim starts its own VM.
type copied struct {
	dir    string
	record *hypervisor.Record
}

// beginCopy calls Options.Copy in the background. The caller must receive the result.
func (o Options) beginCopy(ctx context.Context) <-chan copied {
	done := make(chan copied, 1)
	c := copied{dir: filepath.Join(o.StateDir, layout.VM)}
	if o.Copy == nil {
		done <- c
		return done
	}
	go func() {
		if o.makeOwn(c.dir) == nil {
			if r, err := o.Copy(ctx, c.dir); err == nil {
				c.record = &r
			}
		}
		fault.Point("shim.copied")
		done <- c
	}()
	return done
}

// makeOwn creates a directory that is accessible only to its owner.
func (o Options) makeOwn(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil || o.Owner == nil {
		return err
	}
	return os.Lchown(dir, o.Owner.UID, o.Owner.GID)
}

// copyEnd bounds the wait for a killed VM.
const copyEnd = 10 * time.Second

// kill kills a VM that no shim uses. If that fails, the VM is found later by its sockets in the directory.
func (c copied) kill() {
	if c.record == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), copyEnd)
	defer cancel()
	_ = c.record.Process.Signal(unix.SIGKILL)
	if c.record.Process.Wait(ctx) == nil {
		_ = os.RemoveAll(c.dir)
	}
}
