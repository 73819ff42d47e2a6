// Package lease serves a pod's host.sock: it passes the files of surrogates to the sandbox (package shim/hostio), and
// kills a process in the VM if its surrogate dies.
//
// A surrogate's connection is a lease on its process. A process that an earlier shim has served keeps its lease: its
// surrogate must connect to this shim within ReturnPatience.
package lease

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/hostio"
)

// Bounds of a Server.
const (
	// MaxConns bounds the open connections.
	MaxConns = 512
	// ReturnPatience is the time that a surrogate has to connect to the next shim. It connects at once.
	ReturnPatience = 10 * time.Second

	helloDeadline = 10 * time.Second // for the first message
	writeDeadline = 10 * time.Second // for a surrogate that does not read
)

// Sandbox is the interface of *sandbox.Sandbox that the server uses.
type Sandbox interface {
	AttachFiles(ctx context.Context, p sandbox.Process, f sandbox.HostFiles, attached func()) (sandbox.Exit, error)
	Leases() []sandbox.Process
	EndLease(p sandbox.Process) error
	ProcessStatus(p sandbox.Process) (sandbox.ProcessStatus, error)
	ResizeProcess(ctx context.Context, p sandbox.Process, width, height uint16) error
	SignalProcess(ctx context.Context, p sandbox.Process, sig unix.Signal, all bool) error
	WaitProcess(ctx context.Context, p sandbox.Process) (sandbox.Exit, error)
}

var _ Sandbox = (*sandbox.Sandbox)(nil)

// Options are the parts that a Server uses; all are required.
type Options struct {
	Sandbox Sandbox
	// Discard deletes an exec'd process that has ended, because its surrogate has its exit or is dead.
	Discard func(ctx context.Context, p sandbox.Process)
	Logger  *slog.Logger
}

// Server serves surrogates. New creates it. Its methods are safe for concurrent use.
type Server struct {
	o      Options
	hello  time.Duration // helloDeadline
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  int
	closed bool
	missed map[sandbox.Process]*time.Timer // leases of an earlier shim, until their surrogates connect
}

// New returns a server that lives until Close. It waits for the surrogates of an earlier shim.
func New(o Options) *Server {
	s := &Server{o: o, hello: helloDeadline, missed: map[sandbox.Process]*time.Timer{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range o.Sandbox.Leases() {
		s.missed[p] = time.AfterFunc(ReturnPatience, func() { s.expire(p) })
	}
	return s
}

// expire kills a process if its surrogate has not come back.
func (s *Server) expire(p sandbox.Process) {
	s.mu.Lock()
	if s.missed[p] == nil || s.closed {
		s.mu.Unlock()
		return
	}
	delete(s.missed, p)
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	s.o.Logger.Warn("a surrogate did not come back", "container", p.Container, "exec", p.Exec)
	s.kill(p)
}

// returned notes that a process has a surrogate.
func (s *Server) returned(p sandbox.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.missed[p]; t != nil {
		t.Stop()
		delete(s.missed, p)
	}
}

// acceptPause is the delay after a failed accept, for example without free descriptors: there is no event for a free
// one.
const acceptPause = 100 * time.Millisecond

// Serve accepts connections until l or the Server is closed.
func (s *Server) Serve(l *net.UnixListener) {
	stop := context.AfterFunc(s.ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case err == nil:
			s.accept(conn)
			continue
		case s.ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			return
		}
		select {
		case <-time.After(acceptPause):
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Server) accept(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		conn.Close()
		return
	case s.conns >= MaxConns:
		refuse(conn, hostio.ErrBusy, "too many connections")
		conn.Close()
		return
	}
	s.conns++
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		s.handle(conn)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns--
	}()
}

// Drain refuses new surrogates, and waits until the exits of all ended processes were sent or ctx ends.
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

// Close ends all connections, and returns when they have ended. The leases go on with the next shim.
func (s *Server) Close() {
	s.refuse()
	s.cancel()
	s.wg.Wait()
}

func (s *Server) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, t := range s.missed {
		t.Stop()
	}
}

// killPause is the delay between two tries to kill a process: there is no event for a VM that runs again.
const killPause = time.Second

// kill kills a process that has lost its surrogate, and all of its container's processes with the first one.
func (s *Server) kill(p sandbox.Process) {
	log := s.o.Logger.With("container", p.Container, "exec", p.Exec)
	for first := true; ; first = false {
		st, err := s.o.Sandbox.ProcessStatus(p)
		if err != nil {
			return // it was deleted
		}
		if st.State == sandbox.Stopped {
			break
		}
		if err = s.o.Sandbox.SignalProcess(s.ctx, p, unix.SIGKILL, p.Exec == ""); err == nil {
			break
		}
		if first && !errors.Is(err, errdefs.ErrNotFound) {
			log.Warn("cannot kill a process without a surrogate yet", "error", err)
		}
		select {
		case <-time.After(killPause):
		case <-s.ctx.Done():
			return
		}
	}
	if p.Exec == "" {
		return // the engine deletes it
	}
	if _, err := s.o.Sandbox.WaitProcess(s.ctx, p); err == nil {
		s.o.Discard(s.ctx, p)
	}
}
