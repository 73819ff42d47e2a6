// Package resolver takes DNS queries of the guest at 127.0.0.11:53, and relays them to the host. As
// with docker, the sockets there have another port, so containers may listen on port 53 themselves.
package resolver

import (
	"bufio"
	"io"
	"os"
	"sync"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Relay relays queries. A query waits for a stream to the host, and goes to the next stream if one ends without an
// answer. The zero value takes no queries. Its methods are safe for concurrent use.
type Relay struct {
	listening sync.Mutex // held by Listen; guards the following
	sockets   []*os.File

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]*query
	current *session // nil without a stream

	conns chan struct{} // has a value for each TCP connection
}

// query is a query without an answer.
type query struct {
	id      uint32
	port    uint16 // its transport, as in agentv1.Datagram
	message []byte
	answer  func([]byte) // takes the answer; must not wait
}

// session is a stream to the host.
type session struct {
	stream io.ReadWriteCloser
	out    sync.Mutex // held while a query is written
}

// Serve sends queries to the host, and its answers to the queries' senders, until the stream ends. A new stream
// replaces the earlier one.
func (r *Relay) Serve(stream io.ReadWriteCloser) {
	s := &session{stream: stream}
	r.mu.Lock()
	if r.current != nil {
		r.current.stream.Close()
	}
	r.current = s
	var waiting []*query
	for _, q := range r.waiting {
		waiting = append(waiting, q)
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.current == s {
			r.current = nil
		}
	}()
	var sent sync.WaitGroup
	defer sent.Wait()
	defer stream.Close()
	sent.Go(func() {
		for _, q := range waiting {
			s.send(q)
		}
	})
	in, buf := bufio.NewReader(stream), make([]byte, agentv1.MaxDatagram)
	for {
		d, err := agentv1.ReadDatagram(in, buf)
		if err != nil {
			return
		}
		r.answered(d)
	}
}

// send sends a query. Serve notices a failed stream.
func (s *session) send(q *query) {
	frame := make([]byte, agentv1.DatagramHeader, agentv1.DatagramHeader+len(q.message))
	agentv1.PutDatagram(frame, q.id, q.port, len(q.message))
	s.out.Lock()
	defer s.out.Unlock()
	if _, err := s.stream.Write(append(frame, q.message...)); err != nil {
		s.stream.Close()
	}
}

// ask sends a query to the host. It returns nil without room for another one.
func (r *Relay) ask(port uint16, message []byte, answer func([]byte)) *query {
	r.mu.Lock()
	if len(r.waiting) == agentv1.MaxQueries {
		r.mu.Unlock()
		return nil
	}
	r.last++
	q := &query{id: r.last, port: port, message: message, answer: answer}
	if r.waiting == nil {
		r.waiting = map[uint32]*query{}
	}
	r.waiting[q.id] = q
	s := r.current
	r.mu.Unlock()
	if s != nil {
		s.send(q)
	}
	return q
}

// forget drops a query. A late answer is dropped too.
func (r *Relay) forget(q *query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, q.id)
}

func (r *Relay) answered(d agentv1.Datagram) {
	r.mu.Lock()
	q := r.waiting[d.Flow]
	delete(r.waiting, d.Flow)
	r.mu.Unlock()
	if q == nil {
		return
	}
	answer := append([]byte{}, d.Data...)
	if len(answer) == 0 {
		answer = failed(q.message)
	}
	q.answer(answer)
}

// The flag of an answer and the code of a failure of the server (RFC 1035).
const (
	flagAnswer    = 0x80
	serverFailure = 2
)

// failed returns the answer of a name server that cannot answer a query.
func failed(message []byte) []byte {
	answer := append([]byte{}, message...)
	answer[2] |= flagAnswer
	answer[3] = answer[3]&0xf0 | serverFailure
	return answer
}
