package agent

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// tcpConn is a connection within the guest. Package net's dialer, with its
// resolver, would make the agent a quarter larger.
type tcpConn struct{ *os.File }

const dialSeconds = 10

// dialTCP connects to an address of this machine.
func dialTCP(to netip.AddrPort) (*tcpConn, error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: dialSeconds})
	if err == nil {
		err = unix.Connect(fd, addr)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return &tcpConn{os.NewFile(uintptr(fd), to.String())}, nil
}

// CloseWrite ends the stream to the other side.
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
