package tap

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/pace"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Idle creates a tap in a network namespace of its own, which exists as long as the file. It leads nowhere, and serves
// as the card of an unused VM. An ordinary user needs a user namespace for it.
func Idle() (*os.File, error) {
	f, err := idle()
	if errors.Is(err, unix.EPERM) {
		f, err = idleOfUser()
	}
	if err != nil {
		return nil, fmt.Errorf("make an idle tap: %w", err)
	}
	return f, nil
}

// idle creates the tap in a thread that enters the namespace.
func idle() (f *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked, and ends with its goroutine.
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = os.NewSyscallError("unshare", err)
			return
		}
		f, err = Make("idle")
	}()
	<-done
	return f, err
}

// idleTimeout bounds the start of a shell.
const idleTimeout = 10 * time.Second

// openScript opens the device and waits until it may end.
const openScript = `exec 3<>` + Node + ` && echo open && read -r end`

// idleOfUser creates the tap for an ordinary user. A process with threads cannot enter a user namespace, so a shell
// does. A tap belongs to the namespace of the process that opened the device. The caller owns the user namespace, so it
// may take the shell's file and create the tap.
func idleOfUser() (*os.File, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pace.Stretch(idleTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--user", "--net", "/bin/sh", "-c", openScript)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	end, err := cmd.StdinPipe() // the shell ends when it is closed
	if err != nil {
		return nil, err
	}
	opened, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout // the first line is the answer, or an error
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = end.Close()
		_ = cmd.Wait() // its exit code has no meaning
	}()
	if line, err := bufio.NewReader(io.LimitReader(opened, 4096)).ReadString('\n'); line != "open\n" {
		return nil, fmt.Errorf("open %s in a user namespace: %s: %w", Node, strings.TrimSpace(line), cmp.Or(err, errors.ErrUnsupported))
	}
	shell, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	f, err := shell.File(3)
	if err != nil {
		return nil, err
	}
	if err = unix.SetNonblock(int(f.Fd()), true); err == nil {
		err = set(int(f.Fd()), "idle")
	}
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("ioctl", err), f.Close())
	}
	return f, nil
}
