// Package shim is the near side of a pod's own process: it starts one, finds a
// running one, and talks to it. The process itself (cmd/bulkhead-shim) is made
// of the packages below this one.
//
// A shim serves containerd's Task (v3) and Sandbox (v1) services and our
// extension service on one unix socket of its state directory. Start makes the
// process and its machine; CreateSandbox and StartSandbox then make the pod.
// A shim lives until ShutdownSandbox or until its state directory is removed,
// and outlives whoever started it. When it is killed, or gets SIGTERM, its
// machine lives on, and Adopt starts another shim for it. A shim makes one machine
// only: a stopped sandbox is started again by StartSandbox of a new shim, which Adopt
// starts when the old one has got SIGTERM.
package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// Start starts a shim, which at once starts its machine, and returns when its
// services are served: the machine may still be coming up, and StartSandbox
// waits for it. When the shim fails to start nothing is left behind, and the
// error carries the tail of its stderr. One that was killed at its start may
// leave a machine: StateDir stays then, so that hypervisor.Driver.End can find
// it in the directory layout.VM there.
func Start(ctx context.Context, o Options) (_ *Client, err error) {
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	if err := o.makeDirs(&rollback); err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	files, closeKernel, err := o.machineFiles()
	if err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	defer closeKernel()
	return o.launch(ctx, bootstrap.Message{Machine: o.Machine, Patience: o.Patience}, files)
}

// Adopt starts a new shim for a sandbox whose shim has died. Of o it uses ID,
// Instance, StateDir, DataDir, Machine, Scratch, Logs, Owner, Spawn and Path,
// and for a later start of a stopped sandbox Memory and State, or the files of
// Machine's kernel and initrd: the rest is in the state. A machine that has died meanwhile is no error: its containers have
// then ended, with the reason VMKilled. If Adopt fails, nothing has changed.
func Adopt(ctx context.Context, o Options) (*Client, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("adopt a sandbox: %w", err)
	}
	files, closeKernel, err := o.machineFiles()
	if err != nil {
		return nil, fmt.Errorf("adopt a sandbox: %w", err)
	}
	defer closeKernel()
	files[bootstrap.Scratch] = o.Scratch
	for id, f := range o.Logs {
		files[bootstrap.LogPrefix+id] = f
	}
	o.Copy = nil
	return o.launch(ctx, bootstrap.Message{Adopt: true, Machine: o.Machine}, files)
}

func (o Options) validate() error {
	switch {
	case o.ID == "" || o.Path == "":
		return errors.New("an id and the path of an executable are required")
	case !filepath.IsAbs(o.StateDir) || len(o.StateDir) > MaxStateDir:
		return fmt.Errorf("state directory %q must be an absolute path of at most %d bytes", o.StateDir, MaxStateDir)
	case (o.Memory == nil) != (o.State == nil):
		return errors.New("a clone needs both memory and state")
	}
	return nil
}

// machineFiles are what a machine is started from. The kernel of a cold boot is
// opened here, since it may lie where the owner cannot go.
func (o Options) machineFiles() (map[string]*os.File, func(), error) {
	if o.Memory != nil || o.Machine.Kernel == "" {
		return map[string]*os.File{bootstrap.Memory: o.Memory, bootstrap.State: o.State, bootstrap.Tap: o.Tap}, func() {}, nil
	}
	kernel, initrd, err := o.openKernel()
	if err != nil {
		return nil, nil, err
	}
	return map[string]*os.File{bootstrap.Kernel: kernel, bootstrap.Initrd: initrd, bootstrap.Tap: o.Tap}, func() {
		kernel.Close()
		initrd.Close()
	}, nil
}

func (o Options) openKernel() (kernel, initrd *os.File, err error) {
	if kernel, err = os.Open(o.Machine.Kernel); err != nil {
		return nil, nil, fmt.Errorf("open the kernel: %w", err)
	}
	if initrd, err = os.Open(o.Machine.Initrd); err != nil {
		kernel.Close()
		return nil, nil, fmt.Errorf("open the initrd: %w", err)
	}
	return kernel, initrd, nil
}

// machineLeft reports whether a machine may live whose sockets lie below dir.
func machineLeft(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, layout.VM))
	return err == nil && len(entries) > 0
}

// makeDirs makes the pod's directories, its owner's and nobody else's.
func (o Options) makeDirs(rollback *undo.Stack) error {
	for _, dir := range []string{o.StateDir, o.DataDir} {
		if dir == "" {
			continue
		}
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			rollback.Push("make "+dir, func(context.Context) error {
				if machineLeft(dir) {
					return nil
				}
				return os.RemoveAll(dir)
			})
		} else if !errors.Is(err, os.ErrExist) {
			return err
		}
		if o.Owner != nil {
			if err := os.Lchown(dir, o.Owner.UID, o.Owner.GID); err != nil {
				return err
			}
		}
	}
	return nil
}
