// Package sockets opens sockets in the network namespaces of clients. The engine may not enter these. It gets sockets
// from a process in the namespace (package network/adopt/inside), and binds and connects them itself.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
)

// Namespace is a network namespace. held is an end of a pair of a process that runs inside.Serve. One request at a time
// goes there; using is held for it. Its methods are safe for concurrent use.
type Namespace struct {
	held  network.Held
	using *sync.Mutex
}

// Of returns a namespace. All that use the same one share the lock.
func Of(held network.Held, using *sync.Mutex) Namespace { return Namespace{held, using} }

// socket returns a new socket.
func (n Namespace) socket(ctx context.Context, kind inside.Kind) (*os.File, error) {
	n.using.Lock()
	defer n.using.Unlock()
	f, err := n.held.Holder.File(n.held.FD)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := inside.NewClient(f)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Socket(ctx, kind)
}

// Listen opens a port in the namespace, as network.Listen does on the host. The caller closes it.
func (n Namespace) Listen(ctx context.Context, p network.Port) (l network.Listener, err error) {
	l.Port = p
	at, err := netip.ParseAddr(p.HostIP)
	if err != nil {
		return l, err
	}
	kind := kindOf(at, p.Datagrams())
	f, err := n.socket(ctx, kind)
	if errors.Is(err, unix.EAFNOSUPPORT) && at == netip.IPv6Unspecified() {
		at = netip.IPv4Unspecified()
		f, err = n.socket(ctx, kindOf(at, p.Datagrams()))
	}
	if err != nil {
		return l, err
	}
	defer f.Close() // the listener has a duplicate
	if err := bind(f, netip.AddrPortFrom(at, uint16(p.HostPort)), p.Datagrams()); err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: %w", network.ErrPortInUse, err)
		}
		return l, fmt.Errorf("listen on %s in the network namespace: %w", net.JoinHostPort(p.HostIP, strconv.Itoa(p.HostPort)), err)
	}
	if !p.Datagrams() {
		l.Listener, err = net.FileListener(f)
		return l, err
	}
	conn, err := net.FilePacketConn(f)
	if err == nil {
		l.UDP = conn.(*net.UDPConn)
	}
	return l, err
}

// dialTimeout bounds a connection to a server in the namespace.
const dialTimeout = 5 * time.Second

// Dial connects to an address in the namespace, by TCP or, with datagrams, by UDP. The caller closes the connection.
func (n Namespace) Dial(ctx context.Context, to netip.AddrPort, datagrams bool) (net.Conn, error) {
	f, err := n.socket(ctx, kindOf(to.Addr(), datagrams))
	if err != nil {
		return nil, err
	}
	defer f.Close() // the connection has a duplicate
	if err := connect(f, to); err != nil {
		return nil, fmt.Errorf("connect to %s in the network namespace: %w", to, err)
	}
	return net.FileConn(f)
}

func kindOf(a netip.Addr, datagrams bool) inside.Kind {
	switch {
	case a.Is4() && datagrams:
		return inside.UDP4
	case a.Is4():
		return inside.TCP4
	case datagrams:
		return inside.UDP6
	}
	return inside.TCP6
}

func address(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// bind gives a socket an address. A TCP socket listens then. An IPv6 one serves IPv4 too.
func bind(f *os.File, to netip.AddrPort, datagrams bool) error {
	return control(f, func(fd int) error {
		if to.Addr().Is6() {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
		}
		if !datagrams {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
		}
		if err := unix.Bind(fd, address(to)); err != nil || datagrams {
			return os.NewSyscallError("bind", err)
		}
		return os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	})
}

// connect connects a socket that does not block.
func connect(f *os.File, to netip.AddrPort) error {
	err := control(f, func(fd int) error { return unix.Connect(fd, address(to)) })
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	if err := f.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		number, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && number != 0 {
			err = unix.Errno(number)
		}
		failed = err
		_, err = unix.Getpeername(int(fd))
		return failed != nil || err == nil
	})
	return errors.Join(err, failed)
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := raw.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return err
	}
	return done
}
