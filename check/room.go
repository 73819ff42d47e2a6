package check

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/network"
)

// endTimeout bounds the end of what a probe has started.
const endTimeout = 5 * time.Second

// lockName is the file in a probe's directory that its process has locked.
const lockName = "lock"

// room makes a directory of a probe's own in which VMs' sockets fit. leave removes it. When this process is
// killed instead, Sweep does.
func (m *machine) room() (dir string, leave func(), err error) {
	for range 10 {
		dir, err = os.MkdirTemp(m.options.Roots.State, "c")
		if err != nil {
			return "", nil, err
		}
		lock, lockErr := flock.Try(filepath.Join(dir, lockName))
		if err = lockErr; err == nil {
			return dir, func() { _ = errors.Join(os.RemoveAll(dir), lock.Unlock()) }, nil
		}
		_ = os.RemoveAll(dir) // another process's Sweep was quicker
	}
	return "", nil, err
}

// Sweep ends and removes what killed processes have left of their probes: VMs, networks, directories. It returns
// how many probes these were.
func Sweep(ctx context.Context, r dirs.Roots) (swept int, err error) {
	found, err := filepath.Glob(filepath.Join(r.State, "c[0-9]*"))
	for _, dir := range found {
		lock, lockErr := flock.Try(filepath.Join(dir, lockName))
		if errors.Is(lockErr, flock.ErrLocked) || errors.Is(lockErr, os.ErrNotExist) {
			continue // its process lives, or has removed it
		}
		if lockErr != nil {
			err = errors.Join(err, lockErr)
			continue
		}
		oneErr := errors.Join(qemu.Driver{}.End(ctx, dir), qemu.Driver{}.End(ctx, filepath.Join(dir, forkDir)), network.End(ctx, dir))
		if oneErr == nil {
			oneErr = os.RemoveAll(dir)
			swept++
		}
		err = errors.Join(err, oneErr, lock.Unlock())
	}
	return swept, err
}

// tied starts a process that the kernel kills when the calling thread ends. The caller keeps that thread
// (runtime.LockOSThread) until the process has ended.
func tied(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return cmd.Start()
}
