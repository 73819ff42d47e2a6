package crun

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// consoleListener is where crun leaves the terminal that it made.
type consoleListener struct{ fd int }

func listenConsole(path string) (*consoleListener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("console socket: %w", err)
	}
	l := &consoleListener{fd: fd}
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

func (l *consoleListener) close() { unix.Close(l.fd) }

// receive takes the terminal. crun has ended, so it has been sent, and nothing
// here waits.
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
		return nil, fmt.Errorf("console: no descriptor came: %w", unix.EBADMSG)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("console: no descriptor came: %w", unix.EBADMSG)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, fmt.Errorf("console: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "console"), nil
}
