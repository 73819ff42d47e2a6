package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/tail"
)

// startTimeout bounds the start of an engine, which adopts the pods of an earlier one before it serves.
const startTimeout = 60 * time.Second

// absent reports whether an error means that no engine listens, or that the listening one is stopping.
func absent(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ENOENT, syscall.ECONNRESET, syscall.EPIPE, io.EOF} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ensure starts an engine unless another client has just started one. A lock serialises starts.
func (c *Client) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.roots.Ensure(); err != nil {
		return fmt.Errorf("%w (set BULKHEAD_DATA and BULKHEAD_STATE to directories of your own)", err)
	}
	dir := c.roots.Instance(Instance)
	if err := dirs.Ensure(dir, 0o711); err != nil {
		return err
	}
	lock, err := flock.Acquire(ctx, filepath.Join(dir, "start.lock"))
	if err != nil {
		return fmt.Errorf("start the engine: %w", err)
	}
	defer lock.Unlock()
	if conn, err := net.Dial("unix", Socket(c.roots)); err == nil {
		return conn.Close()
	}
	return c.start(ctx, c.roots)
}

// ReadyFD is the environment variable with the number of the file descriptor on which an engine reports that it is
// ready.
const ReadyFD = "BULKHEAD_READY_FD"

// StartProcess is the Starter of the command line. It runs bulkhead-engine in its own session, with its output in a
// bounded file, and waits until the engine reports that it is ready, or ends.
func StartProcess(ctx context.Context, r dirs.Roots) error {
	exe, log, err := prepare(r)
	if err != nil {
		return err
	}
	defer log.Close()
	ready, readyW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the engine: %w", err)
	}
	defer ready.Close()
	cmd := exec.Command(exe)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{readyW}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "BULKHEAD_DATA="+r.Data, "BULKHEAD_STATE="+r.State, ReadyFD+"=3")
	err = cmd.Start()
	readyW.Close()
	if err != nil {
		return fmt.Errorf("start the engine: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := ready.SetReadDeadline(deadline); err != nil {
			return fmt.Errorf("start the engine: %w", err)
		}
	}
	said := make([]byte, len("ready"))
	_, readErr := io.ReadFull(ready, said) // another process may hold it open
	if string(said) == "ready" {
		return cmd.Process.Release()
	}
	if errors.Is(readErr, os.ErrDeadlineExceeded) {
		readErr = errors.Join(readErr, cmd.Process.Kill())
	}
	waitErr := cmd.Wait()
	if errors.Is(readErr, io.EOF) {
		readErr = nil // the engine has ended, and Wait returns its error
	}
	return failed(log, errors.Join(waitErr, readErr))
}

// prepare returns the engine's program and its log.
func prepare(r dirs.Roots) (exe string, log *os.File, err error) {
	if exe, err = dirs.Sibling("bulkhead-engine"); err == nil {
		log, err = openLog(filepath.Join(r.Instance(Instance), "engine.log"))
	}
	if err != nil {
		return "", nil, fmt.Errorf("start the engine: %w", err)
	}
	return exe, log, nil
}

// failed returns the error of an engine that has not started, with the last line of its log.
func failed(log *os.File, err error) error {
	return fmt.Errorf("start the engine: %s (its log is %s): %w", tail.Line(tail.File(log)), log.Name(), err)
}

// logLimit is the size of an engine's log, in bytes, above which the next engine truncates it.
const logLimit = 1 << 20

func openLog(path string) (*os.File, error) {
	flags := os.O_RDWR | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}
