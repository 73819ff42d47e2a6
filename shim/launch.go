package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/tail"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// endPatience is how long a shim that is not wanted any more has to put away
// what it has started.
const endPatience = 15 * time.Second

// StartError is a shim that did not come up. Its message is one line.
type StartError struct {
	// Err is what the shim said, or how it ended.
	Err error
	// Stderr is the tail of what it wrote.
	Stderr string
}

func (e *StartError) Error() string {
	if line := tail.Line(e.Stderr); line != "" && !strings.Contains(line, e.Err.Error()) {
		return fmt.Sprintf("%v: %s", e.Err, line)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// launch starts the process, tells it what it is for, and connects to it.
func (o Options) launch(ctx context.Context, m bootstrap.Message, files map[string]*os.File) (*Client, error) {
	m.ID, m.Instance, m.StateDir, m.DataDir = o.ID, o.Instance, o.StateDir, o.DataDir
	log, err := o.openLog()
	if err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	defer log.Close()
	conn, far, err := bootstrap.Pair()
	if err != nil {
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	defer conn.Close()
	copied := o.beginCopy(ctx) // beside the shim's own start
	ended, err := o.spawn(far, log)
	far.Close()
	forked := <-copied
	if err != nil {
		forked.end()
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	if m.Copy = forked.record; m.Copy != nil {
		files = nil // of what it would clone
	}
	fault.Point("shim.spawned")
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var reply bootstrap.Reply
	if err = bootstrap.Send(conn, m, files); err == nil {
		reply, err = bootstrap.Await(conn)
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET):
		err = fmt.Errorf("the shim exited during its start")
	case err == nil && reply.Error != "":
		err = fmt.Errorf("the shim failed: %s", reply.Error)
	}
	if err != nil {
		conn.Close() // which tells the shim to put everything away
		ended.within(endPatience)
		forked.end() // which the shim may not have taken over yet
		return nil, &StartError{Err: err, Stderr: tail.File(log)}
	}
	return Connect(ctx, o.StateDir)
}

// child is a started shim. Its parent must take its exit status, or it stays a
// zombie; a goroutine that lives as long as both does.
type child struct {
	process *os.Process
	done    chan struct{}
}

func (o Options) spawn(far, log *os.File) (*child, error) {
	cmd := exec.Command(o.Path)
	cmd.Args = []string{"bulkhead-shim", o.Instance, o.ID}
	cmd.Env = environment()
	cmd.Dir = "/"
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{far} // bootstrap.FD
	// A session of its own: no terminal's signal reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Owner != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{
			Uid: uint32(o.Owner.UID), Gid: uint32(o.Owner.GID), Groups: o.groups(),
		}
		// The executable may lie where that user cannot go.
		exe, err := os.Open(o.Path)
		if err != nil {
			return nil, err
		}
		defer exe.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, exe)
		cmd.Path = fmt.Sprintf("/proc/self/fd/%d", bootstrap.FD+1)
	}
	start := o.Spawn
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(cmd); err != nil {
		return nil, err
	}
	c := &child{cmd.Process, make(chan struct{})}
	go func() {
		defer close(c.done)
		cmd.Wait()
	}()
	return c, nil
}

// groups are those that the owner's processes get beside their own: the one
// that may use /dev/kvm, if they have to.
func (o Options) groups() []uint32 {
	if o.Machine.Accel != hypervisor.KVM {
		return nil
	}
	info, err := os.Stat("/dev/kvm")
	if err != nil {
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Gid != 0 {
		return []uint32{st.Gid}
	}
	return nil
}

// within waits for the end, and kills the process when it does not come.
func (c *child) within(d time.Duration) {
	select {
	case <-c.done:
	case <-time.After(d):
		c.process.Kill()
		<-c.done
	}
}

// environment is what a shim and QEMU need to be found and to be tuned; the
// engine's own may hold secrets.
func environment() []string {
	var env []string
	for _, name := range []string{"PATH", "BULKHEAD_QEMU"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, fault.Environ()...)
}

func (o Options) openLog() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(o.StateDir, layout.Log), os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if o.Owner != nil {
		if err := f.Chown(o.Owner.UID, o.Owner.GID); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}
