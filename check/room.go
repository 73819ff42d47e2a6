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

// endTimeout bounds the end of a probe's processes.
const endTimeout = 5 * time.Second

// lockName is the file in a probe's directory that its process locks.
const lockName = "lock"

// room creates a directory for a probe, with a path short enough for VMs' sockets. leave removes it. If this
// process is killed, Sweep does.
func (m *host) room() (dir string, leave func(), err error) {
	for range 10 {
		dir, err = os.MkdirTemp(m.options.Roots.State, "c")
		if err != nil {
			return "", nil, err
		}
		lock, lockErr := flock.Try(filepath.Join(dir, lockName))
		if err = lockErr; err == nil {
			return dir, func() { _ = errors.Join(os.RemoveAll(dir), lock.Unlock()) }, nil
		}
		_ = os.RemoveAll(dir) // another process's Sweep was faster
	}
	return "", nil, err
}

// Sweep ends and removes the VMs, networks and directories of killed probes. It returns the number of these probes.
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
		oneErr := errors.Join(qemu.Driver{}.End(ctx, dir), qemu.Driver{}.End(ctx, filepath.Join(dir, forkDir)), network.RemoveShared(ctx, dir))
		if oneErr == nil {
			oneErr = os.RemoveAll(dir)
			swept++
		}
		err = errors.Join(err, oneErr, lock.Unlock())
	}
	return swept, err
}

// tied starts a process that the kernel kills when the calling thread ends. The caller must keep that thread
// (runtime.LockOSThread) until the process has ended.
func tied(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return cmd.Start()
}
