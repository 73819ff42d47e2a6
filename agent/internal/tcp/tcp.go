// Package tcp connects to TCP ports of the pod. Package net's dialer, with its resolver, would make the agent a quarter
// larger.
package tcp

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection within the guest.
type conn struct{ *os.File }

const dialTimeout = 10 * time.Second

// Dial connects to a port of this VM. It tries each host in order, and returns the error of the first one if none
// accepts.
func Dial(hosts []netip.Addr, port uint16) (io.ReadWriteCloser, error) {
	var first error
	for _, host := range hosts {
		c, err := dial(netip.AddrPortFrom(host, port))
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func dial(to netip.AddrPort) (*conn, error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	err = unix.Connect(fd, addr)
	c := &conn{os.NewFile(uintptr(fd), to.String())}
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
func (c *conn) connected() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
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
func (c *conn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var shutdown error
	if err := raw.Control(func(fd uintptr) { shutdown = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		return err
	}
	return shutdown
}
