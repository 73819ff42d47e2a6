package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/hypervisor/warm"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/pace"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// forked is the result of a fork.
type forked struct {
	arch  string
	accel hypervisor.Accel
	none  error // no library
	took  time.Duration
	err   error
}

func (m *host) forks(ctx context.Context) Finding {
	if why := m.lacking(); why != "" {
		return warn(why, "")
	}
	f := forked{arch: runtime.GOARCH, accel: m.accel}
	var library string
	library, f.none = dirs.Sibling("bulkhead-warm.so")
	if f.accel == hypervisor.TCG && f.none == nil {
		f.took, f.err = m.forkOnce(ctx, library)
	}
	return judgeForks(f)
}

// judgeForks never fails, because pods can be clones.
func judgeForks(f forked) Finding {
	const cloned = "; pods' VMs are cloned instead, which costs each a second of a processor"
	switch {
	case f.accel == hypervisor.KVM:
		return ok("not needed: KVM translates no code")
	case f.arch != "amd64":
		return warn("only x86-64 has them"+cloned, "")
	case f.none != nil:
		return warn(f.none.Error()+cloned, "install Bulkhead whole (make install), or set BULKHEAD_LIBEXEC to the directory of its programs")
	case f.err != nil:
		return warn(fmt.Sprintf("QEMU could not be forked: %s%s", strings.ReplaceAll(f.err.Error(), "\n", ": "), cloned),
			"use a distribution's QEMU on glibc; with BULKHEAD_WARM=off no engine tries")
	}
	return ok(fmt.Sprintf("a QEMU was forked within %.1f ms, and the fork answered", float64(f.took.Microseconds())/1000))
}

// forkTimeout bounds a fork. Without the library in QEMU there is no answer.
const forkTimeout = 5 * time.Second

// forkOnce starts a VM with the library and forks it. The guest gets no time to boot.
func (m *host) forkOnce(ctx context.Context, library string) (took time.Duration, err error) {
	dir, leave, err := m.room()
	if err != nil {
		return 0, err
	}
	defer leave()
	console, err := os.OpenFile(filepath.Join(dir, "console"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer console.Close()
	runtime.LockOSThread() // the VM ends with this thread
	defer runtime.UnlockOSThread()
	var control *warm.Control
	v, err := m.driver.Boot(ctx, m.guestVM(hypervisor.TCG), hypervisor.Files{Console: console}, hypervisor.Options{
		Dir: dir, Name: forkName, Start: func(cmd *exec.Cmd) (err error) {
			if control, err = warm.Prepare(cmd, library); err != nil {
				return err
			}
			return errors.Join(tied(cmd), control.Started())
		},
	})
	if control != nil {
		defer control.Close()
	}
	if err != nil {
		return 0, err
	}
	forkCtx, cancel := context.WithTimeout(ctx, pace.Stretch(forkTimeout))
	defer cancel()
	if err = v.Pause(forkCtx); err == nil {
		took, err = m.fork(forkCtx, control, filepath.Join(dir, forkDir))
	}
	if err != nil {
		err = v.Explain("fork", err)
	}
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return took, errors.Join(err, v.Kill(endCtx), v.Close())
}

// forkName is the name of the VM and its fork. forkDir is the fork's directory below the VM's.
const (
	forkName = "check"
	forkDir  = "f"
)

// fork forks the VM, asks the fork and ends it.
func (m *host) fork(ctx context.Context, c *warm.Control, dir string) (took time.Duration, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	files, err := qemu.Inherit(dir)
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, f := range files {
			f.File.Close()
		}
	}()
	began := time.Now()
	a, err := c.Fork(ctx, warm.Request{Name: qemu.ProcessName(forkName), Files: files})
	if err != nil {
		return 0, err
	}
	defer func() { _, reapErr := procid.Reap(a.PID); err = errors.Join(err, reapErr) }()
	id, err := procid.Of(a.PID)
	if err != nil {
		return 0, err
	}
	defer func() { _ = id.Signal(unix.SIGKILL) }() // it may have exited
	r := hypervisor.Record{Process: id, Dir: dir, VM: m.guestVM(hypervisor.TCG)}
	v, err := m.driver.Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: forkName, Dir: dir})
	if err != nil {
		return 0, err
	}
	return time.Since(began), v.Close()
}
