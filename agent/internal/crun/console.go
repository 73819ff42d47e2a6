package crun

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// consoleListener receives the terminal that crun creates.
type consoleListener struct {
	fd   int
	path string
}

// listenConsole creates the socket in a new directory below dir. The path of a process's own directory contains two ids
// and would exceed the 108 bytes of a socket's address.
func listenConsole(dir string) (*consoleListener, error) {
	dir, err := os.MkdirTemp(dir, "tty")
	if err != nil {
		return nil, fmt.Errorf("console socket: %w", err)
	}
	path := filepath.Join(dir, "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("console socket: %w", err)
	}
	l := &consoleListener{fd: fd, path: path}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		l.close()
		return nil, fmt.Errorf("console socket: %w", err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		l.close()
		return nil, fmt.Errorf("console socket: %w", err)
	}
	return l, nil
}

func (l *consoleListener) close() {
	unix.Close(l.fd)
	os.RemoveAll(filepath.Dir(l.path))
}

// receive receives the terminal. It does not block, because crun has ended and so has sent it.
func (l *consoleListener) receive() (*os.File, error) {
	conn, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("console: accept: %w", err)
	}
	defer unix.Close(conn)
	data, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(conn, data, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("console: receive: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("console: crun sent no descriptor: %w", unix.EBADMSG)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("console: crun sent no descriptor: %w", unix.EBADMSG)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, fmt.Errorf("console: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "console"), nil
}
