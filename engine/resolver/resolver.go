// Package resolver answers the DNS queries of a guest with the name server of a client's network namespace.
package resolver

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// server is docker's name server. Queries go to no other address.
var server = netip.MustParseAddrPort("127.0.0.11:53")

// patience bounds a query. Clients in the guest ask again after five seconds, and give up after ten.
const patience = 10 * time.Second

// Dial connects to an address in the namespace, by TCP or, with datagrams, by UDP.
type Dial func(ctx context.Context, to netip.AddrPort, datagrams bool) (net.Conn, error)

// Serve answers the queries of a stream until it ends or ctx ends, and closes it; see agentv1.MaxQueries. It returns
// when all queries have ended.
func Serve(ctx context.Context, stream net.Conn, dial Dial) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	s := &relay{stream: stream, dial: dial, patience: patience}
	defer s.wg.Wait()
	defer cancel()
	free := make(chan struct{}, agentv1.MaxQueries)
	in, buf := bufio.NewReader(stream), make([]byte, agentv1.MaxDatagram)
	for {
		query, err := agentv1.ReadDatagram(in, buf)
		if err != nil {
			return err
		}
		if query.Port != agentv1.OverUDP && query.Port != agentv1.OverTCP {
			return fmt.Errorf("the guest's query has the transport %d: must be %d or %d", query.Port, agentv1.OverUDP, agentv1.OverTCP)
		}
		query.Data = append([]byte{}, query.Data...)
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.wg.Go(func() {
			defer func() { <-free }()
			s.resolve(ctx, query)
		})
	}
}

type relay struct {
	stream   net.Conn
	dial     Dial
	patience time.Duration
	wg       sync.WaitGroup
	out      sync.Mutex // held while an answer is written
}

// resolve asks the name server, and writes its answer to the stream.
func (s *relay) resolve(ctx context.Context, query agentv1.Datagram) {
	answer, err := s.ask(ctx, query)
	if err != nil {
		answer = nil // the guest's client gets the answer of a server that fails
	}
	frame := make([]byte, agentv1.DatagramHeader, agentv1.DatagramHeader+len(answer))
	agentv1.PutDatagram(frame, query.Flow, query.Port, len(answer))
	s.out.Lock()
	defer s.out.Unlock()
	if _, err := s.stream.Write(append(frame, answer...)); err != nil {
		s.stream.Close() // Serve returns then
	}
}

func (s *relay) ask(ctx context.Context, query agentv1.Datagram) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	if len(query.Data) < agentv1.DNSHeader {
		return nil, fmt.Errorf("a query of %d bytes", len(query.Data))
	}
	conn, err := s.dial(ctx, server, query.Port == agentv1.OverUDP)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if query.Port == agentv1.OverUDP {
		if _, err := conn.Write(query.Data); err != nil {
			return nil, err
		}
		return datagram(conn.(*net.UDPConn))
	}
	// A length of two bytes precedes each message.
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query.Data))), query.Data...)); err != nil {
		return nil, err
	}
	var header [2]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return nil, err
	}
	answer = make([]byte, binary.BigEndian.Uint16(header[:]))
	_, err = io.ReadFull(conn, answer)
	return answer, err
}

// datagram returns the next datagram. It takes no more memory than the datagram has.
func datagram(conn *net.UDPConn) ([]byte, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	size := 0
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		size, _, failed = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_TRUNC)
		return failed != unix.EAGAIN
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	answer := make([]byte, size)
	n, err := conn.Read(answer)
	return answer[:n], err
}
