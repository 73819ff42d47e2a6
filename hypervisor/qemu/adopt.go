package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu/qmp"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Adopt implements hypervisor.Driver. It may be called while the previous owner is dying. QEMU serves one QMP client at
// a time: the new client waits for its greeting until the old one is gone.
func (d Driver) Adopt(ctx context.Context, r hypervisor.Record, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	v := &vm{record: r, console: newConsole(f.Console), done: make(chan struct{})}
	if err := checkName(r.Process, o.Name); err != nil {
		return nil, v.failed("connect", "adopt the VM", err)
	}
	v.stderr = openStderr(r.Process.PID)
	if err := v.watchProcess(); err != nil {
		v.Close()
		return nil, v.failed("connect", "watch the process", err)
	}
	opened, err := v.open(ctx, o.Connections)
	if err != nil {
		v.Close()
		return nil, v.failed("connect", "adopt the VM", v.deathOr(err))
	}
	if err := v.connect(ctx, opened, o); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// checkName returns nil if the process is a VM with that name, hypervisor.ErrGone if it has ended, and another error
// for any other process of the host. The record has the process's start time too, so the answer stays valid.
func checkName(process procid.ID, name string) error {
	args, err := process.Args()
	if errors.Is(err, procid.ErrGone) {
		return hypervisor.ErrGone
	}
	if err != nil {
		return err
	}
	// The position varies: the program may be a script that adds arguments of its own.
	if at := slices.Index(args, processName(name)); at < 1 || args[at-1] != "-name" {
		return fmt.Errorf("process %d is not the VM %s", process.PID, name)
	}
	return nil
}

// End implements hypervisor.Driver. The listening sockets in dir are older than the QEMU that was started with them. So
// a socket that refuses a connection has no process any more.
func (d Driver) End(ctx context.Context, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// An owner that hangs may hold one of the sockets.
	results := make(chan error, 2)
	for _, name := range []string{qmpSocket, monitorSocket} {
		go func() { results <- quit(ctx, dir, name) }()
	}
	err := <-results
	if err == nil {
		cancel()
	}
	if second := <-results; err != nil {
		err = second
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("end the VM of %s: %w", dir, err)
	}
	RemoveSockets(dir)
	return nil
}

// quit asks a QEMU to quit, and waits until it has ended.
func quit(ctx context.Context, dir, name string) error {
	c, err := monitor(ctx, dir, name)
	if err != nil {
		return err
	}
	defer c.Close()
	// QEMU may end before it has sent the whole answer.
	_ = c.Execute(ctx, "quit", nil, nil)
	select {
	case <-c.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// monitor connects to a VM that another process has started. The VM's user may own the directory; the VM's owner owns
// its parent.
func monitor(ctx context.Context, dir, name string) (*qmp.Client, error) {
	conn, err := podsock.Dial(ctx, filepath.Dir(dir), filepath.Join(filepath.Base(dir), name))
	if err != nil {
		return nil, err
	}
	return qmp.New(ctx, conn)
}

// gone reports whether a dial failed because there is no listener.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET) ||
		errors.Is(err, io.EOF)
}
