package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tcpConn is a connection within the guest. Package net's dialer, with its resolver, would make the agent a quarter
// larger.
type tcpConn struct{ *os.File }

const dialTimeout = 10 * time.Second

// dialTCP connects to an address of this VM.
func dialTCP(to netip.AddrPort) (*tcpConn, error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	err = unix.Connect(fd, addr)
	c := &tcpConn{os.NewFile(uintptr(fd), to.String())}
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = c.connected()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return c, nil
}

// connected waits until a pending connect has finished.
func (c *tcpConn) connected() error {
	conn, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			failed = err
		} else if n != 0 {
			failed = unix.Errno(n)
		}
		_, err := unix.Getpeername(int(fd))
		return failed != nil || !errors.Is(err, unix.ENOTCONN)
	})
	if err == nil {
		err = failed
	}
	if err == nil {
		err = c.SetWriteDeadline(time.Time{})
	}
	return err
}

// CloseWrite closes the writing side.
func (c *tcpConn) CloseWrite() error {
	conn, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var shutdown error
	if err := conn.Control(func(fd uintptr) { shutdown = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		return err
	}
	return shutdown
}
