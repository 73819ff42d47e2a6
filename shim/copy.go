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

// copied is a machine that was made for a shim; without a record there is none, and the
// shim makes its own.
type copied struct {
	dir    string
	record *hypervisor.Record
}

// beginCopy has Options.Copy make the machine. The result is to be received.
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

// makeOwn makes a directory, its owner's and nobody else's.
func (o Options) makeOwn(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil || o.Owner == nil {
		return err
	}
	return os.Lchown(dir, o.Owner.UID, o.Owner.GID)
}

// copyEnd bounds the end of a machine that was killed.
const copyEnd = 10 * time.Second

// end ends a machine that no shim has any more. What fails is left for who ends what
// has its sockets in the directory.
func (c copied) end() {
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
