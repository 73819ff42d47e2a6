package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/hostoom"
)

// Program is the name of the process's executable.
const Program = "bulkhead-convert"

const (
	// killWait bounds the wait for a killed process's pipes.
	killWait = 5 * time.Second
	maxText  = 1 << 10
	maxCrash = 4 << 10
	// pipeSize lets a fetch run ahead of the conversion.
	pipeSize = 1 << 20
)

// call is one run of the process.
type call struct {
	request Request
	group   *hostcgroup.Group
	files   []*os.File
	layers  []Layer
}

// do runs the process until it has ended. Nothing of it is left when do returns.
func (c *call) do(ctx context.Context) (reply Reply, err error) {
	path, err := dirs.Sibling(Program)
	if err != nil {
		return Reply{}, errors.Join(err, c.stop())
	}
	running, kill := context.WithCancel(ctx)
	defer kill()
	var crash head
	cmd := exec.CommandContext(running, path)
	cmd.Env = []string{"GOTRACEBACK=single"}
	cmd.Dir = "/"
	cmd.ExtraFiles = c.files
	cmd.Stderr = &crash
	cmd.WaitDelay = killWait
	// The terminal's signals do not reach it. It ends with the thread that starts it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	err = c.group.Start(cmd, func(cmd *exec.Cmd) (err error) {
		reply, err = c.run(ctx, running, kill, cmd, &crash)
		return err
	})
	if cmd.Process == nil {
		err = errors.Join(fmt.Errorf("start %s: %w", Program, err), c.stop())
	}
	return reply, err
}

// run is the part of do in the group's thread, which is kept until the process has ended.
func (c *call) run(ctx, running context.Context, kill context.CancelFunc, cmd *exec.Cmd, crash *head) (Reply, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return Reply{}, err
	}
	widen(in)
	if err := cmd.Start(); err != nil {
		return Reply{}, err
	}
	oom := hostoom.Read(cmd.Process.Pid) // the process still waits for the request
	fed, answered := make(chan error, 1), make(chan struct{})
	go func() {
		err := errors.Join(c.feed(in), in.Close())
		fed <- err // sent before the process is killed for it
		select {
		case <-answered:
		default:
			if err != nil && !errors.Is(err, unix.EPIPE) {
				kill() // the process would wait for the rest
			}
		}
	}()
	var reply Reply
	replyErr := receive(out, maxReply, &reply)
	close(answered)
	// After its answer the process is not waited for. If it closed the pipe without one, its exit status may give the
	// reason soon.
	grace := time.Duration(0)
	if errors.Is(replyErr, io.EOF) || errors.Is(replyErr, io.ErrUnexpectedEOF) {
		grace = killWait
	}
	defer time.AfterFunc(grace, kill).Stop()
	var feedErr, stopErr error
	select {
	case feedErr = <-fed:
		stopErr = c.stop()
	default: // it has ended before its layers, which end now
		stopErr = c.stop()
		if <-fed != nil {
			feedErr = errUnread
		}
	}
	waitErr := cmd.Wait()
	if waitErr == nil || running.Err() != nil { // it was killed
		waitErr = replyErr
	}
	var source *sourceError
	switch {
	case ctx.Err() != nil:
		return Reply{}, context.Cause(ctx)
	case replyErr == nil && reply.Fault != nil:
		reply.Fault.Text = clean(reply.Fault.Text)
		return Reply{}, reply.Fault
	case errors.As(feedErr, &source):
		return Reply{}, source.err
	case replyErr != nil && killed(waitErr) && oom.Happened():
		return Reply{}, ErrMemory
	case replyErr != nil:
		return Reply{}, fmt.Errorf("%s failed: %w%s", Program, waitErr, crash.line())
	case feedErr != nil && len(c.layers) > 0:
		// A layer that was not read to its end is not verified.
		return Reply{}, errUnread
	}
	return reply, stopErr
}

// killed reports whether a process ended by SIGKILL.
func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL
}

// widen enlarges a pipe. A smaller one is only slower.
func widen(pipe any) {
	f, ok := pipe.(syscall.Conn)
	if !ok {
		return
	}
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// errUnread means that the process answered before it had read the layers.
var errUnread = fmt.Errorf("%w: it answered before it had read its layers", errMessage)

// head keeps the first bytes of its input.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), max(0, maxCrash-h.Len()))])
	return len(p), nil
}

// line returns the first line, for an error.
func (h *head) line() string {
	text, _, _ := strings.Cut(h.String(), "\n")
	if text = clean(text); text == "" {
		return ""
	}
	return ": " + text
}

// clean returns the process's text as one printable line: the process may be hostile.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text[:min(len(text), maxText)])
	return strings.TrimSpace(text)
}
