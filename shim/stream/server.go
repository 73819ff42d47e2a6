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

	"github.com/containerd/errdefs"
)

// Bounds of a Server.
const (
	// MaxTokens bounds the unused tokens.
	MaxTokens = 256
	// Patience is the lifetime of an unused token.
	Patience = time.Minute
	// MaxConns bounds the open connections.
	MaxConns = 256

	tokenDeadline = 10 * time.Second
	tokenSize     = 16 // bytes
)

// ErrBusy is returned when a bound of the Server is reached.
var ErrBusy = errdefs.ErrResourceExhausted.WithMessage("too many streams")

// Handler opens the target of a stream. Its error is sent to the client, with its class if that is
// syscall.ECONNREFUSED. run then carries the bytes, and returns when the stream is over or ctx ends. The Server closes
// the connection.
type Handler func(ctx context.Context) (run func(ctx context.Context, conn *net.UnixConn), err error)

// Server issues tokens and serves the connections that use them. NewServer creates it. Its methods are safe for
// concurrent use.
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
	abandoned func() // may be nil
	timer     *time.Timer
}

// NewServer returns a Server that lives until Close.
func NewServer() *Server {
	s := &Server{tokens: map[string]*ticket{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Issue returns a token that can be used for h once, within Patience.
func (s *Server) Issue(h Handler) (string, error) { return s.issue(h, nil) }

// Prepare is Issue with a cleanup: the Server calls abandoned once if the token is not used within Patience, or when
// Abandon is called. Close waits for it. Tokens that remain at Drain or Close are dropped without that call.
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
	if t := s.removeToken(token); t != nil {
		return t.handler
	}
	return nil
}

// Abandon expires the unused tokens of Prepare, because their engine is gone.
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

// expire withdraws an unused token and runs its cleanup.
func (s *Server) expire(token string) {
	s.mu.Lock()
	t := s.removeToken(token)
	if t == nil || t.abandoned == nil {
		s.mu.Unlock()
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	t.abandoned()
}

// removeToken removes a token, once; the caller holds mu.
func (s *Server) removeToken(token string) *ticket {
	t := s.tokens[token]
	if t != nil {
		t.timer.Stop()
		delete(s.tokens, token)
	}
	return t
}

// acceptPause is the delay after a failed accept, for example without free descriptors: there is no event for a free
// one.
const acceptPause = 100 * time.Millisecond

// Serve accepts connections until l or the Server is closed.
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
		if err := s.addConn(); err != nil {
			fmt.Fprintln(conn, err)
			conn.Close()
			continue
		}
		go s.handle(conn)
	}
}

// Drain refuses new clients, and waits until the running streams have ended by themselves or ctx ends.
func (s *Server) Drain(ctx context.Context) {
	s.refuse()
	ended := make(chan struct{})
	go func() { // ends by Close at the latest
		s.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Close ends every stream, and returns when they have ended.
func (s *Server) Close() {
	s.refuse()
	s.cancel()
	s.wg.Wait()
}

// refuse stops accepting clients and drops the tokens.
func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for token, t := range s.tokens {
		t.timer.Stop()
		delete(s.tokens, token)
	}
}

func (s *Server) addConn() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("the pod's VM is ending")
	case s.conns >= MaxConns:
		return ErrBusy
	}
	s.conns++
	s.wg.Add(1)
	return nil
}

func (s *Server) removeConn() {
	s.mu.Lock()
	s.conns--
	s.mu.Unlock()
	s.wg.Done()
}

func (s *Server) handle(conn *net.UnixConn) {
	defer s.removeConn()
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
