package service

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/events"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
	"github.com/bulkhead-project/bulkhead/shim/steps"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// operationTimeout bounds an operation that may outlive its caller.
const operationTimeout = 3 * time.Minute

// Options are the parts that the services use. All but Accel, Clone and Console are required.
type Options struct {
	ID      string // the sandbox's
	Sandbox Sandbox
	Hub     *events.Hub
	Files   *fdpass.Store
	Streams *stream.Server
	// StreamAddress is the path of the socket that Streams serves.
	StreamAddress string
	// Console is the guest's console log, owned by the caller.
	Console *Console
	Accel   string
	Clone   bool
	// Shutdown is called when the shim should end, possibly several times. It must return at once.
	Shutdown func()
	Logger   *slog.Logger
	// Steps stores the steps of traced calls.
	Steps *steps.Store
}

// Services are the services of one pod. New creates them and Close ends them.
type Services struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	slots     slots // connections of published ports
	published published
	followers atomic.Int32 // running calls of Events

	mu      sync.Mutex
	flights map[string]*flight
	io      map[sandbox.Process]stdio
}

// New returns the services of o.
func New(o Options) *Services {
	s := &Services{o: o, flights: map[string]*flight{}, io: map[sandbox.Process]stdio{}, slots: make(slots, maxForwards)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Register registers the services on srv.
func (s *Services) Register(srv *ttrpc.Server) {
	taskv3.RegisterTTRPCTaskService(srv, task{s})
	sandboxv1.RegisterTTRPCSandboxService(srv, pod{s})
	shimv1.RegisterExtensionService(srv, extension{s})
}

// Close ends all running operations, including published ports, and returns when they have ended.
func (s *Services) Close() {
	s.cancel()
	s.wg.Wait()
}

// OnEvent returns a function for sandbox.Options.Events that publishes a sandbox's events.
func OnEvent(id string, hub *events.Hub, log *slog.Logger) func(sandbox.Event) {
	return func(e sandbox.Event) {
		converted, err := events.Convert(id, e)
		if err != nil {
			log.Warn("drop an event", "error", err)
			return
		}
		hub.Publish(converted)
	}
}

// flight is a running operation of the sandbox. Callers join it, and a caller that leaves does not cancel it.
type flight struct {
	done chan struct{}
	err  error
}

// join runs op under key, or waits for the running operation with that key.
func (s *Services) join(ctx context.Context, key string, op func(context.Context) error) error {
	s.mu.Lock()
	f := s.flights[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		s.flights[key] = f
		s.wg.Add(1)
		go s.fly(ctx, key, f, op)
	}
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Services) fly(ctx context.Context, key string, f *flight, op func(context.Context) error) {
	defer s.wg.Done()
	opCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationTimeout)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	f.err = op(opCtx)
	s.mu.Lock()
	delete(s.flights, key)
	s.mu.Unlock()
	close(f.done)
}
