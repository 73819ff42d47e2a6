package bootstrap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenFD is the descriptor of the socket in a front.
const ListenFD = 3

// LogName is the fifo in a bundle's directory that containerd copies to its own log.
const LogName = "log"

// Daemon starts the front of a new socket in the working directory, which is a bundle's, and returns its process. The
// front's standard error is the log fifo. Containerd reads standard output until all copies are closed, so the front has
// none.
func Daemon(inv Invocation, socket Socket, env []string) (*os.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the front: %w", err)
	}
	log, err := OpenLog(LogName)
	if err != nil {
		return nil, fmt.Errorf("start the front: %w", err)
	}
	defer log.Close()
	inv.Socket = socket.Path
	cmd := exec.Command(self, inv.Args()...)
	cmd.Env = env
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{socket.File} // becomes ListenFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the front: %w", err)
	}
	return cmd.Process, nil
}

// OpenLog opens the log fifo of a bundle, for reading as well: containerd can be restarted without an error for the
// writer. A full fifo loses messages and never blocks. Without a fifo there is no log.
func OpenLog(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Environment returns a front's environment. It is this process's, with the address of the event service, and without the
// variables for containerd itself.
func Environment(environ []string, p Params) []string {
	var env []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC":
			continue
		case TTRPCAddress:
			if p.TTRPC != "" {
				continue
			}
		}
		env = append(env, entry)
	}
	if p.TTRPC != "" {
		env = append(env, TTRPCAddress+"="+p.TTRPC)
	}
	return env
}

// TTRPCAddress is the variable with the address of containerd's event service.
const TTRPCAddress = "TTRPC_ADDRESS"

// Inherit returns the socket that Daemon passed, and closes all other descriptors that were inherited beside the standard
// ones. A caller of containerd waits until all copies of its pipes are closed. Inherited descriptors lack close-on-exec.
// This process and the Go runtime set it on theirs.
func Inherit() (*os.File, error) {
	listening, err := unix.GetsockoptInt(ListenFD, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || listening == 0 {
		return nil, fmt.Errorf("descriptor %d must be a socket that listens: only containerd starts this program", ListenFD)
	}
	unix.CloseOnExec(ListenFD)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("close inherited files: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= ListenFD {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return os.NewFile(ListenFD, "socket"), nil
}
