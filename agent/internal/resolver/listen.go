package resolver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	"github.com/bulkhead-project/bulkhead/agent/internal/sockets"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// address is docker's name server in the namespaces of its networks.
var address = netip.MustParseAddrPort("127.0.0.11:53")

// tries is the number of free UDP ports that are tried also for TCP.
const tries = 10

// Bounds of TCP connections: their number, the wait for the next query, and the wait for its answer.
const (
	maxConns   = 32
	idle       = 10 * time.Second
	answerWait = 20 * time.Second
)

// Listen opens the address, once. The guest's programs find it open until the VM ends.
func (r *Relay) Listen() error {
	return r.listen(netip.AddrPortFrom(address.Addr(), 0), func(socket *os.File, port uint16) error {
		namespace, err := unix.GetsockoptUint64(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		if err != nil {
			return os.NewSyscallError("getsockopt", err)
		}
		all, err := os.Open(cgroup.Mount)
		if err != nil {
			return err
		}
		defer all.Close()
		return redirect(all, address, port, namespace)
	})
}

// listen opens sockets, and calls opened with one of them and with their port.
func (r *Relay) listen(at netip.AddrPort, opened func(*os.File, uint16) error) error {
	r.listening.Lock()
	defer r.listening.Unlock()
	if r.sockets != nil {
		return nil
	}
	udp, tcp, port, err := openBoth(at)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", at, err)
	}
	if err := opened(udp, port); err != nil {
		return errors.Join(err, udp.Close(), tcp.Close())
	}
	r.sockets, r.conns = []*os.File{udp, tcp}, make(chan struct{}, maxConns)
	go r.datagrams(udp)
	go r.accept(tcp)
	return nil
}

// openBoth opens a UDP and a TCP socket with the same port, a free one if the address has none.
func openBoth(at netip.AddrPort) (udp, tcp *os.File, port uint16, err error) {
	for range tries {
		if udp, err = open(at, unix.SOCK_DGRAM); err != nil {
			return nil, nil, 0, err
		}
		var its unix.Sockaddr
		if its, err = unix.Getsockname(int(udp.Fd())); err == nil {
			port = uint16(its.(*unix.SockaddrInet4).Port)
			tcp, err = open(netip.AddrPortFrom(at.Addr(), port), unix.SOCK_STREAM)
		}
		if err == nil {
			return udp, tcp, port, nil
		}
		udp.Close()
	}
	return nil, nil, 0, err
}

func open(at netip.AddrPort, kind int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if kind == unix.SOCK_STREAM {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, maxConns)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), at.String()), nil
}

// datagrams takes queries by UDP until the socket is closed. It drops them without room for another one, as a network
// would.
func (r *Relay) datagrams(udp *os.File) {
	buf := make([]byte, agentv1.MaxDatagram)
	for {
		n, from := 0, unix.Sockaddr(nil)
		err := sockets.Read(udp, func(fd int) (err error) {
			n, from, err = unix.Recvfrom(fd, buf, 0)
			return err
		})
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || n < agentv1.DNSHeader {
			continue
		}
		r.ask(agentv1.OverUDP, append([]byte{}, buf[:n]...), func(answer []byte) {
			_ = sockets.Write(udp, func(fd int) error { return unix.Sendto(fd, answer, unix.MSG_NOSIGNAL, from) })
		})
	}
}

// accept takes TCP connections until the socket is closed.
func (r *Relay) accept(tcp *os.File) {
	for {
		r.conns <- struct{}{} // further clients wait in the backlog
		fd := -1
		err := sockets.Read(tcp, func(listener int) (err error) {
			fd, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return err
		})
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			<-r.conns
			if !errors.Is(err, unix.ECONNABORTED) {
				<-time.After(time.Second) // most likely out of descriptors
			}
			continue
		}
		go func() {
			defer func() { <-r.conns }()
			conn := os.NewFile(uintptr(fd), "DNS client")
			defer conn.Close()
			for r.exchange(conn) == nil {
			}
		}()
	}
}

// exchange takes one query from a TCP connection, and answers it. A length of two bytes precedes each message.
func (r *Relay) exchange(conn *os.File) error {
	if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
		return err
	}
	var header [2]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint16(header[:])
	if length < agentv1.DNSHeader {
		return fmt.Errorf("a query of %d bytes", length)
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(conn, message); err != nil {
		return err
	}
	answers := make(chan []byte, 1)
	q := r.ask(agentv1.OverTCP, message, func(answer []byte) { answers <- answer })
	if q == nil {
		return fmt.Errorf("more than %d queries", agentv1.MaxQueries)
	}
	defer r.forget(q)
	late := time.NewTimer(answerWait)
	defer late.Stop()
	select {
	case answer := <-answers:
		if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		_, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
		return err
	case <-late.C:
		return os.ErrDeadlineExceeded
	}
}
