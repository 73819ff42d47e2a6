package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Times of a logging program.
const (
	// readyDeadline bounds the start, as ctx does.
	readyDeadline = 30 * time.Second
	// finish is the time to read the rest after the process has ended. Then it gets SIGTERM.
	finish = 10 * time.Second
	// terminate is the time after SIGTERM. Then it is killed.
	terminate = 2 * time.Second
)

// logger is a running logging program.
type logger struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// startLogger starts the program of a URL such as binary:///usr/bin/logger?key=value, by containerd's rules: it reads
// stdout from descriptor 3 and stderr from 4, and closes 5 when it is ready. Its environment names the container. The
// newer scheme binary-v2 wants a byte before that, so that the end of the program does not count as ready.
func (s *Streams) startLogger(ctx context.Context, u *url.URL, owner Owner, wantByte bool) error {
	stdout, out, err := pipe()
	if err != nil {
		return fmt.Errorf("start logging program %s: %w", u.Path, err)
	}
	defer stdout.Close()
	s.Stdout = out
	stderr, out, err := pipe()
	if err != nil {
		return fmt.Errorf("start logging program %s: %w", u.Path, err)
	}
	defer stderr.Close()
	s.Stderr = out
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start logging program %s: %w", u.Path, err)
	}
	defer r.Close()
	defer w.Close()
	cmd := exec.Command(u.Path, arguments(u)...)
	cmd.Env = []string{"CONTAINER_ID=" + owner.ID, "CONTAINER_NAMESPACE=" + owner.Namespace}
	cmd.ExtraFiles = []*os.File{stdout, stderr, w}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start logging program %s: %w", u.Path, err)
	}
	s.logger = &logger{cmd: cmd, ended: make(chan struct{})}
	go s.logger.wait()
	w.Close()
	if err := ready(ctx, r, wantByte); err != nil {
		_ = cmd.Process.Kill()
		return fmt.Errorf("start logging program %s: %w", u.Path, err)
	}
	return nil
}

// pipe returns a pipe in blocking mode, as other programs expect it.
func pipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// arguments returns the program's arguments: each key of the query and its first value, in the keys' order.
func arguments(u *url.URL) (args []string) {
	query := u.Query()
	keys := make([]string, 0, len(query))
	for key := range query {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		args = append(args, key)
		if values := query[key]; values[0] != "" {
			args = append(args, values[0])
		}
	}
	return args
}

// ready waits until the program closes its end of r.
func ready(ctx context.Context, r *os.File, wantByte bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })()
	n, err := r.Read(make([]byte, 1))
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("it did not get ready: %w", ctx.Err())
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case wantByte && n == 0:
		return errors.New("it closed descriptor 5 without a byte, or ended, before it was ready")
	}
	return nil
}

func (l *logger) wait() {
	_ = l.cmd.Wait() // the result of a logger changes nothing
	close(l.ended)
}

// close waits until the program has read everything and ended, and ends it otherwise.
func (l *logger) close() {
	for _, step := range []struct {
		patience time.Duration
		signal   unix.Signal
	}{{finish, unix.SIGTERM}, {terminate, unix.SIGKILL}} {
		timer := time.NewTimer(step.patience)
		select {
		case <-l.ended:
			timer.Stop()
			return
		case <-timer.C:
			_ = l.cmd.Process.Signal(step.signal)
		}
	}
	<-l.ended
}
