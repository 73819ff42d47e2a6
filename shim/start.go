// Package shim starts and adopts the shim process of a pod and talks to it. The process itself (cmd/bulkhead-shim)
// consists of the packages below this one.
//
// A shim serves containerd's Task (v3) and Sandbox (v1) services and our extension service on one unix socket in its
// state directory. Start starts the process and its VM; CreateSandbox and StartSandbox then create the pod. A shim
// lives until ShutdownSandbox or until its state directory is removed. It outlives its starter. When it is killed or
// gets SIGTERM, its VM lives on, and Adopt starts another shim for it. A shim starts only one VM. To start a stopped
// sandbox again, end its shim with SIGTERM, call Adopt, and call StartSandbox of the new shim.
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

// Start starts a shim, which starts its VM at once, and returns when the shim serves. The VM may still be starting;
// StartSandbox waits for it. If the shim fails to start, nothing is left behind, and the error carries the tail of its
// stderr. A shim that was killed during its start may leave a VM. StateDir then stays, so that hypervisor.Driver.End
// can find the VM in its directory layout.VM.
func Start(ctx context.Context, o Options) (_ *Client, err error) {
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	if err := o.makeDirs(&rollback); err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	files, closeKernel, err := o.vmFiles()
	if err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	defer closeKernel()
	return o.launch(ctx, bootstrap.Message{VM: o.VM, Patience: o.Patience}, files)
}

// Adopt starts a new shim for a sandbox with a dead shim. It uses ID, Instance, StateDir, DataDir, VM, Scratch,
// Logs, Owner, Spawn and Path of o; the rest is in the stored state. To start a stopped sandbox later, it also needs
// Memory and State, or the files of the VM's kernel and initrd. It is no error if the VM has died meanwhile: its
// containers then have ended with the reason VMKilled. If Adopt fails, nothing has changed.
func Adopt(ctx context.Context, o Options) (*Client, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("adopt a sandbox: %w", err)
	}
	files, closeKernel, err := o.vmFiles()
	if err != nil {
		return nil, fmt.Errorf("adopt a sandbox: %w", err)
	}
	defer closeKernel()
	files[bootstrap.Scratch] = o.Scratch
	for id, f := range o.Logs {
		files[bootstrap.LogPrefix+id] = f
	}
	o.Copy = nil
	return o.launch(ctx, bootstrap.Message{Adopt: true, VM: o.VM}, files)
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

// vmFiles returns the files from which a VM is started. It opens the kernel of a cold boot, because the owner may
// have no access to its path.
func (o Options) vmFiles() (map[string]*os.File, func(), error) {
	if o.Memory != nil || o.VM.Kernel == "" {
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
	if kernel, err = os.Open(o.VM.Kernel); err != nil {
		return nil, nil, fmt.Errorf("open the kernel: %w", err)
	}
	if initrd, err = os.Open(o.VM.Initrd); err != nil {
		kernel.Close()
		return nil, nil, fmt.Errorf("open the initrd: %w", err)
	}
	return kernel, initrd, nil
}

// vmLeft reports whether a VM with sockets below dir may still run.
func vmLeft(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, layout.VM))
	return err == nil && len(entries) > 0
}

// makeDirs creates the pod's directories, accessible only to the owner.
func (o Options) makeDirs(rollback *undo.Stack) error {
	for _, dir := range []string{o.StateDir, o.DataDir} {
		if dir == "" {
			continue
		}
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			rollback.Push("make "+dir, func(context.Context) error {
				if vmLeft(dir) {
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
