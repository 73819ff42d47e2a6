package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/dirwatch"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Service is an engine. Its methods may be called at once.
type Service struct {
	o        Options
	log      *slog.Logger
	store    *store.Store
	shims    shims
	machines machines
	scratch  scratch.Maker
	host     sizing.Host
	groups   *hostcgroup.Host
	lock     *flock.Lock
	started  time.Time
	found    Reaped // by New

	// ctx ends with Close; wg counts every goroutine. Both belong to spawn.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	flights flights
	events  hub
	pool    pool
	watches dirwatch.Watches

	mu        sync.Mutex
	closed    bool
	pods      map[string]*pod // those that may be seen, by id
	working   map[string]bool // ids that are being made, or are in the pool
	turns     chan struct{}   // see admit
	networks  sync.Mutex      // held while a network is made
	providers map[network.Kind]provider
}

var errClosed = errorf(codes.Unavailable, "the engine is closed")

// provider is the network of a kind.
type provider struct {
	network.Provider
	retry time.Time // when a better one is to be tried for; zero is never
}

// networkRetry is how long pods go with less of a network than they asked for
// before it is tried again: what was the matter may have been a bad moment.
const networkRetry = time.Minute

// lockWait bounds the wait for an engine of the same instance to end.
const lockWait = 5 * time.Second

// New makes the engine of an instance and adopts the pods that an earlier one
// left. There is one engine an instance at a time: while another runs, New
// fails with an error that matches flock.ErrLocked. What could not be adopted
// or undone is logged and left for Reap.
func New(ctx context.Context, o Options) (*Service, error) {
	if o.Shim == "" {
		path, err := dirs.Sibling("bulkhead-shim")
		if err != nil {
			return nil, fmt.Errorf("start the engine: %w", err)
		}
		o.Shim = path
	}
	m, err := newMachines(o)
	if err != nil {
		return nil, fmt.Errorf("start the engine: %w", err)
	}
	o.groups = hostcgroup.Find(groupTag(o.Roots, o.Instance))
	return newService(ctx, o, processes{}, m)
}

func newService(ctx context.Context, o Options, sh shims, m machines) (*Service, error) {
	st, err := store.Open(o.Roots, o.Instance)
	if err != nil {
		return nil, fmt.Errorf("start the engine: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.DefaultNetwork == "" {
		o.DefaultNetwork = network.KindUser
	}
	if o.groups == nil {
		o.groups = &hostcgroup.Host{} // which has none
	}
	lockCtx, cancelLock := context.WithTimeout(ctx, lockWait)
	defer cancelLock()
	lock, err := flock.Acquire(lockCtx, st.LockPath())
	if err != nil {
		return nil, fmt.Errorf("start the engine of instance %s: %w", o.Instance, err)
	}
	s := &Service{
		o: o, log: o.Logger, store: st, shims: sh, machines: m, lock: lock,
		scratch: scratch.Maker{Templates: o.Roots.Templates()}, host: hostOf(), groups: o.groups, started: time.Now(),
		pods: map[string]*pod{}, working: map[string]bool{}, providers: map[network.Kind]provider{},
		turns: make(chan struct{}, startsPerCPU*runtime.NumCPU()),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.watches.Spawn, s.watches.Match = s.spawn, replaced
	if s.found, err = s.Reap(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the engine: %w", err), s.Close(ctx))
	}
	s.pool.init(s)
	return s, nil
}

// spawn runs f in a goroutine that Close waits for, unless the engine is
// closed.
func (s *Service) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
	return true
}

// Close ends the pool and lets go of the pods, which run on. Operations under
// way fail and are undone. It returns when no goroutine of the engine runs any
// more; ctx is not obeyed in that, as each is bounded by itself.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	err := s.pool.drain(context.WithoutCancel(ctx))
	s.mu.Lock()
	pods := slices.Collect(maps.Values(s.pods))
	s.mu.Unlock()
	for _, p := range pods {
		p.release()
	}
	s.events.close()
	s.groups.Tidy()
	err = errors.Join(err, s.machines.Close(), s.lock.Unlock())
	if err != nil {
		return fmt.Errorf("close the engine: %w", err)
	}
	return nil
}

// startsPerCPU is how many pods and containers are made at once for each of the
// host's processors. More would take no less time in all, and each so long that
// its steps miss their deadlines.
const startsPerCPU = 4

// admit waits for the caller's turn to make a pod or a container, in the order
// of the calls. The end of ctx, or of the engine, ends the wait.
func (s *Service) admit(ctx context.Context) (done func(), err error) {
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns }, nil
	case <-ctx.Done():
		return nil, fail(ctx.Err(), "wait for a turn to start")
	}
}

// provider returns the network of a kind. To make the first takes a while.
func (s *Service) provider(kind network.Kind) (network.Provider, error) {
	s.networks.Lock()
	defer s.networks.Unlock()
	if c, ok := s.providers[kind]; ok && (c.retry.IsZero() || time.Now().Before(c.retry)) {
		return c.Provider, nil
	}
	p, err := s.o.Network(kind)
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", kind, err)
	}
	c := provider{Provider: p}
	if got, _ := p.Kind(); got != kind {
		c.retry = time.Now().Add(networkRetry)
	}
	s.providers[kind] = c
	return p, nil
}
