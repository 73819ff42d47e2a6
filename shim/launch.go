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

// endPatience bounds the cleanup of a shim that failed to start.
const endPatience = 15 * time.Second

// StartError is returned if a shim does not start. Its message is one line.
type StartError struct {
	// Err is the shim's error, or how it ended.
	Err error
	// Stderr is the tail of its stderr.
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

// launch starts the process, sends it the bootstrap message and connects to it.
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
	copied := o.beginCopy(ctx) // runs while the shim starts
	ended, err := o.spawn(far, log)
	far.Close()
	forked := <-copied
	if err != nil {
		forked.kill()
		return nil, fmt.Errorf("start a shim: %w", err)
	}
	if m.Copy = forked.record; m.Copy != nil {
		files = nil // the files for a clone, which it does not need
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
		conn.Close() // tells the shim to clean up
		ended.within(endPatience)
		forked.kill() // the shim may not have adopted it yet
		return nil, &StartError{Err: err, Stderr: tail.File(log)}
	}
	return Connect(ctx, o.StateDir)
}

// child is a started shim. A goroutine waits for the process, so that it does not stay a zombie.
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
	// A new session keeps terminal signals away from it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Owner != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{
			Uid: uint32(o.Owner.UID), Gid: uint32(o.Owner.GID), Groups: o.groups(),
		}
		// The owner may have no access to the executable's directory.
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

// groups returns the supplementary groups of the owner's processes: the group of /dev/kvm, if they use KVM.
func (o Options) groups() []uint32 {
	if o.VM.Accel != hypervisor.KVM {
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

// within waits for the end, and kills the process after d.
func (c *child) within(d time.Duration) {
	select {
	case <-c.done:
	case <-time.After(d):
		c.process.Kill()
		<-c.done
	}
}

// environment returns the variables that a shim and QEMU need. The engine's own environment may hold secrets.
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
