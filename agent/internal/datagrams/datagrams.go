// Package datagrams carries datagrams between the host and UDP ports of the guest.
package datagrams

import (
	"bufio"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/sockets"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Serve carries the datagrams of a stream until it ends. A flow uses the first of the hosts with a socket on its port:
// if a datagram is refused, the flow moves to the next host. Serve returns when the goroutines of all flows have ended.
func Serve(stream io.ReadWriteCloser, hosts []netip.Addr) {
	s := &server{stream: stream, hosts: hosts, flows: map[uint32]*flow{}, buf: make([]byte, agentv1.DatagramHeader+agentv1.MaxDatagram)}
	defer s.wg.Wait()
	defer s.close()
	in, buf := bufio.NewReader(stream), make([]byte, agentv1.MaxDatagram)
	for {
		d, err := agentv1.ReadDatagram(in, buf)
		if err != nil {
			return
		}
		s.handle(d)
	}
}

type server struct {
	stream io.ReadWriteCloser
	hosts  []netip.Addr
	wg     sync.WaitGroup

	out sync.Mutex // held while a datagram is received into buf and written to the stream
	buf []byte

	mu    sync.Mutex
	ended bool
	flows map[uint32]*flow
}

// flow is a socket connected to a port of the guest.
type flow struct {
	id   uint32
	port uint16
	// The server's mu guards the following.
	socket *os.File
	host   int // index in hosts
	// first is the first datagram, kept for the next host until an answer arrives. A large one is not kept, and so is
	// lost if the host changes.
	first    []byte
	answered bool
}

const maxFirst = 2048

func (s *server) handle(d agentv1.Datagram) {
	s.mu.Lock()
	f := s.flows[d.Flow]
	switch {
	case d.Port == 0:
		if f != nil {
			f.socket.Close()
			delete(s.flows, d.Flow)
		}
		s.mu.Unlock()
		return
	case f == nil:
		if f = s.open(d); f == nil {
			s.mu.Unlock()
			return
		}
	}
	socket := f.socket
	s.mu.Unlock()
	s.send(f, socket, d.Data)
}

// open opens a flow, or returns nil without room for another. The caller holds mu.
func (s *server) open(d agentv1.Datagram) *flow {
	if len(s.flows) >= agentv1.MaxFlows || len(s.hosts) == 0 {
		return nil
	}
	socket, err := dial(netip.AddrPortFrom(s.hosts[0], d.Port))
	if err != nil {
		return nil
	}
	f := &flow{id: d.Flow, port: d.Port, socket: socket}
	if len(d.Data) <= maxFirst {
		f.first = append([]byte{}, d.Data...)
	}
	s.flows[d.Flow] = f
	s.wg.Go(func() { s.receive(f, socket) })
	return f
}

// send sends to a flow's socket, which may have been replaced or closed meanwhile.
func (s *server) send(f *flow, socket *os.File, data []byte) {
	err := sockets.Write(socket, func(fd int) error { return unix.Send(fd, data, unix.MSG_NOSIGNAL) })
	if errors.Is(err, unix.ECONNREFUSED) {
		s.refused(f, socket)
	}
}

// receive forwards the datagrams from a flow's socket until it is closed.
func (s *server) receive(f *flow, socket *os.File) {
	for {
		err := sockets.Read(socket, func(fd int) error {
			s.out.Lock()
			defer s.out.Unlock()
			n, _, err := unix.Recvfrom(fd, s.buf[agentv1.DatagramHeader:], 0)
			if err != nil {
				return err
			}
			agentv1.PutDatagram(s.buf, f.id, f.port, n)
			if _, err := s.stream.Write(s.buf[:agentv1.DatagramHeader+n]); err != nil {
				return io.ErrClosedPipe
			}
			return nil
		})
		switch {
		case err == nil:
			s.mu.Lock()
			f.answered, f.first = true, nil
			s.mu.Unlock()
		case errors.Is(err, unix.ECONNREFUSED):
			s.refused(f, socket)
		case errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
			return
		}
	}
}

// refused moves a flow without an answer to the next host.
func (s *server) refused(f *flow, socket *os.File) {
	s.mu.Lock()
	if f.socket != socket || f.answered || s.ended || s.flows[f.id] != f || f.host+1 == len(s.hosts) {
		s.mu.Unlock()
		return
	}
	f.host++
	next, err := dial(netip.AddrPortFrom(s.hosts[f.host], f.port))
	if err != nil {
		s.mu.Unlock()
		return
	}
	socket.Close()
	f.socket = next
	first := f.first
	s.wg.Go(func() { s.receive(f, next) })
	s.mu.Unlock()
	if first != nil {
		s.send(f, next, first)
	}
}

func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.stream.Close()
	for _, f := range s.flows {
		f.socket.Close()
	}
}

// dial returns a socket connected to an address. Package net would make the agent a quarter larger.
func dial(to netip.AddrPort) (*os.File, error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, addr); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), to.String()), nil
}
