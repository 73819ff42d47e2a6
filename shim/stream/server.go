package stream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of a Server.
const (
	// MaxTokens is the most tokens that wait to be used.
	MaxTokens = 256
	// Patience is how long a token may wait.
	Patience = time.Minute
	// MaxConns is the most connections open at once.
	MaxConns = 256

	tokenDeadline = 10 * time.Second
	tokenSize     = 16 // bytes
)

// ErrBusy is returned when a bound of the Server is reached.
var ErrBusy = errors.New("too many streams")

var errEnding = errors.New("the pod's VM is ending")

// Handler opens what a stream leads to. An error is told to the client, with its
// class if that is syscall.ECONNREFUSED; run
// then carries the bytes, and returns when the stream is over or ctx ends. The
// Server closes the connection.
type Handler func(ctx context.Context) (run func(ctx context.Context, conn *net.UnixConn), err error)

// Server hands out tokens and serves the connections that bring them. Its
// methods may be called at once. It is made by NewServer.
type Server struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	tokens map[string]*ticket
	conns  int
	closed bool
}

type ticket struct {
	handler   Handler
	abandoned func() // nil if there is nothing to clean up
	timer     *time.Timer
}

// NewServer returns a Server that lives until Close.
func NewServer() *Server {
	s := &Server{tokens: map[string]*ticket{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Issue returns a token that leads to h once, within Patience.
func (s *Server) Issue(h Handler) (string, error) { return s.issue(h, nil) }

// Prepare is Issue for something that was prepared for the token's client: abandoned is
// called, once, if the token is not used within Patience, or until Abandon. Close waits
// for it; of tokens that are left at Drain or Close it is not called.
func (s *Server) Prepare(h Handler, abandoned func()) (string, error) { return s.issue(h, abandoned) }

func (s *Server) issue(h Handler, abandoned func()) (string, error) {
	var raw [tokenSize]byte
	rand.Read(raw[:])
	token := hex.EncodeToString(raw[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", net.ErrClosed
	}
	if len(s.tokens) >= MaxTokens {
		return "", fmt.Errorf("%w: %d tokens are waiting", ErrBusy, len(s.tokens))
	}
	s.tokens[token] = &ticket{handler: h, abandoned: abandoned, timer: time.AfterFunc(Patience, func() { s.expire(token) })}
	return token, nil
}

func (s *Server) redeem(token string) Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.withdraw(token); t != nil {
		return t.handler
	}
	return nil
}

// Abandon lets the tokens of Prepare expire that have not been used: who was to hand
// them on is gone.
func (s *Server) Abandon() {
	s.mu.Lock()
	var tokens []string
	for token, t := range s.tokens {
		if t.abandoned != nil {
			tokens = append(tokens, token)
		}
	}
	s.mu.Unlock()
	for _, token := range tokens {
		s.expire(token)
	}
}

// expire ends a token that was not used.
func (s *Server) expire(token string) {
	s.mu.Lock()
	t := s.withdraw(token)
	if t == nil || t.abandoned == nil {
		s.mu.Unlock()
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	t.abandoned()
}

// withdraw takes a token back, once; the caller holds mu.
func (s *Server) withdraw(token string) *ticket {
	t := s.tokens[token]
	if t != nil {
		t.timer.Stop()
		delete(s.tokens, token)
	}
	return t
}

// acceptPause is how soon a failed accept is tried again, as when there are no
// descriptors left: when one is, nothing tells.
const acceptPause = 100 * time.Millisecond

// Serve accepts connections until l is closed or the Server is.
func (s *Server) Serve(l *net.UnixListener) error {
	stop := context.AfterFunc(s.ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			select {
			case <-time.After(acceptPause):
				continue
			case <-s.ctx.Done():
				return nil
			}
		}
		if err := s.enter(); err != nil {
			fmt.Fprintln(conn, err)
			conn.Close()
			continue
		}
		go s.handle(conn)
	}
}

// Drain takes no more clients, and waits until the streams that run have ended
// by themselves or ctx has.
func (s *Server) Drain(ctx context.Context) {
	s.refuse()
	ended := make(chan struct{})
	go func() { // ends with Close at the latest
		s.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Close ends every stream, and returns when none runs any more.
func (s *Server) Close() {
	s.refuse()
	s.cancel()
	s.wg.Wait()
}

// refuse takes no more clients.
func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for token, t := range s.tokens {
		t.timer.Stop()
		delete(s.tokens, token)
	}
}

func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errEnding
	case s.conns >= MaxConns:
		return ErrBusy
	}
	s.conns++
	s.wg.Add(1)
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	s.conns--
	s.mu.Unlock()
	s.wg.Done()
}

func (s *Server) handle(conn *net.UnixConn) {
	defer s.leave()
	defer conn.Close()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	_ = conn.SetDeadline(time.Now().Add(tokenDeadline))
	token, err := readLine(conn)
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	handler := s.redeem(token)
	if handler == nil {
		fmt.Fprintln(conn, "unknown or used token")
		return
	}
	run, err := handler(ctx)
	if err != nil {
		fmt.Fprintln(conn, answer(err))
		return
	}
	if _, err := io.WriteString(conn, "ok\n"); err != nil {
		return
	}
	run(ctx, conn)
}

func answer(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	if errors.Is(err, syscall.ECONNREFUSED) {
		text = nobody + text
	}
	return text[:min(len(text), maxLine-1)]
}
