package vms

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/door/oci"
)

// process is a process in a container, and its surrogate, a child of this process.
type process struct {
	door            *oci.Door
	container, exec string
	p               *os.Process
	exited          chan struct{}
	exit            containerd.Exit
	err             error
}

func watch(d *oci.Door, container, exec string, p *os.Process) *process {
	w := &process{door: d, container: container, exec: exec, p: p, exited: make(chan struct{})}
	go w.wait() // ends with the surrogate
	return w
}

// oomWait bounds the question for the reason of an end.
const oomWait = time.Second

func (p *process) wait() {
	defer close(p.exited)
	state, err := p.p.Wait()
	if p.err = err; err != nil {
		return
	}
	p.exit = containerd.Exit{Status: state.ExitCode(), At: time.Now()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.exit.Status = 128 + int(status.Signal())
	}
	if p.exec != "" || p.exit.Status != 128+int(unix.SIGKILL) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), oomWait)
	defer cancel()
	if p.exit.OOM, err = p.door.OOMKilled(ctx, p.container); err != nil {
		slog.Debug("find the reason of an end", "container", p.container, "error", err) // the VM is often gone
	}
}

// PID implements containerd.Process.
func (p *process) PID() int { return p.p.Pid }

// Wait implements containerd.Process.
func (p *process) Wait(ctx context.Context) (containerd.Exit, error) {
	select {
	case <-p.exited:
		return p.exit, p.err
	case <-ctx.Done():
		return containerd.Exit{}, ctx.Err()
	}
}

// Signal implements containerd.Process.
func (p *process) Signal(ctx context.Context, signal unix.Signal) error {
	if p.exec == "" {
		return class(p.door.Kill(ctx, p.container, signal, false))
	}
	return class(p.door.SignalExec(ctx, p.container, p.exec, signal))
}

// Resize implements containerd.Process.
func (p *process) Resize(ctx context.Context, width, height uint16) error {
	return class(p.door.ResizeProcess(ctx, p.container, p.exec, width, height))
}

// newName returns a name for an exec. Clients reuse theirs at once.
func newName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "c" + hex.EncodeToString(b[:])
}
