// Package run is the door of the commands and the engine process of a user behind it. The first command that needs
// the engine starts it, and a lock elects it. The engine stops after its last pod and its last request. Pods
// outlive it, and the next engine adopts them.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/door/remote"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/door/run/life"
	"github.com/bulkhead-project/bulkhead/door/run/socket"
	"github.com/bulkhead-project/bulkhead/door/run/volumes"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/pod/logs"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// Options configure an engine.
type Options struct {
	Roots dirs.Roots
	// Idle is how long the engine and its warm VMs stay without running pods and requests.
	Idle time.Duration
	// NoForks and Tenant are passed to engine.Options.
	NoForks bool
	// DefaultMemory and DefaultVCPUs are passed to engine.Options.
	DefaultMemory, DefaultVCPUs int
	Tenant                      func(engine.Identity) string
	Logger                      *slog.Logger
	// Environment is the default for requests without one and for pods of an earlier engine.
	Environment api.Environment
}

// shutdownWait bounds the wait for requests in progress when the engine stops.
const shutdownWait = 5 * time.Second

// server serves one user. Run creates it.
type server struct {
	roots  dirs.Roots
	log    *slog.Logger
	engine *engine.Engine
	cri    *cri.Service // over the engine
	images *image.Store // in the environment of the command that started the engine
	places place.Rules
	// ownEnvironment is Options.Environment.
	ownEnvironment api.Environment
	pods           *manager.Manager
	volumes        *volumes.Service
	opened         chan struct{} // closed when pods is set
	// ending is closed when the engine begins to end.
	ending <-chan struct{}
	idle   *life.Idle
	found  sync.Once // adds the results of the engine's start to the first reap
	stop   context.CancelFunc
}

// Run serves until ctx ends or the engine has been idle for long enough. It calls ready when its socket is served.
// If another engine of the same user serves, Run calls ready and returns. If another engine holds the lock and does
// not serve, the error matches flock.ErrLocked.
func Run(ctx context.Context, o Options, ready func()) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lock, err := life.Elect(ctx, o.Roots)
	if errors.Is(err, life.ErrServed) {
		ready()
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	s := &server{
		roots: o.Roots, log: o.Logger, ownEnvironment: o.Environment,
		stop: cancel, opened: make(chan struct{}), ending: ctx.Done(),
	}
	idle, started := life.NewIdle(o.Idle, cancel)
	defer idle.Stop()
	s.idle = idle
	if err := s.open(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.engine.Close(context.WithoutCancel(ctx))) }()
	s.pods, err = manager.Open(ctx, manager.Options{
		Dir: podsDir(o.Roots), VolumeDir: volumesDir(o.Roots), Runtime: s.cri,
		Door: s.newEntry, Hold: s.idle.Hold, Jobs: true, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	s.volumes = &volumes.Service{Engine: s.engine, Pods: s.pods, Volumes: s.engine.Volumes()}
	close(s.opened)
	defer s.pods.Close()
	return s.serve(ctx, func() {
		started()
		ready()
	})
}

// podsDir holds the record and the logs of each pod.
func podsDir(r dirs.Roots) string { return filepath.Join(r.Data, "pods") }

func volumesDir(r dirs.Roots) string { return filepath.Join(r.Instance(client.Instance), "volumes") }

// open opens the engine and the services on top of it.
func (s *server) open(ctx context.Context, o Options) (err error) {
	s.engine, err = engine.Open(ctx, engine.Options{
		Roots: o.Roots, Instance: client.Instance, NoForks: o.NoForks, Tenant: o.Tenant,
		DefaultMemory: o.DefaultMemory, DefaultVCPUs: o.DefaultVCPUs,
		Logger: o.Logger, Building: s.building,
		HostPaths: []string{podsDir(o.Roots), volumesDir(o.Roots)},
		LogBytes:  2 * logs.Bound, // room for output until the pod's log rotator checks again
	})
	if err != nil {
		return err
	}
	s.places = s.engine.Places()
	s.images = s.engine.Images().With(o.Environment.Get)
	s.cri = cri.New(s.engine, cri.Options{
		Roots: o.Roots, Logger: o.Logger, Volumes: layout.Dirs{Own: volumesDir(o.Roots)},
	})
	return nil
}

// building notifies the client that waits for a pod why the start takes longer than usual.
func (s *server) building(uid string) {
	select {
	case <-s.opened:
	default:
		return // no client follows an adopted pod
	}
	if p, err := s.pods.Get(types.UID(uid)); err == nil {
		entryOf(p).log.Add(api.Message{Step: "booting a VM to clone pods from, once for this kernel, size and network"})
	}
}

func (s *server) serve(ctx context.Context, ready func()) error {
	// The doors' socket opens first and closes last: a client that finds the other socket also finds this one.
	doors, err := socket.Listen(ctx, client.EngineSocket(s.roots))
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	l, err := socket.Listen(ctx, client.Socket(s.roots))
	if err != nil {
		return errors.Join(fmt.Errorf("serve: %w", err), doors.Close())
	}
	var unused life.Unused
	srv := &http.Server{
		Handler: s.idle.Count(s.handler()), ReadHeaderTimeout: 10 * time.Second,
		ConnContext: socket.WithConnection, ConnState: unused.State,
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		unused.Close()
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
		defer cancel()
		if err := srv.Shutdown(stopCtx); err != nil {
			s.log.Warn("requests were cut off at the engine's end", "error", errors.Join(err, srv.Close()))
		}
	})
	doorsCtx, endDoors := context.WithCancel(context.WithoutCancel(ctx))
	defer endDoors()
	var doorsErr error
	wg.Go(func() {
		defer s.stop()
		doorsErr = remote.New(s.engine, s.idle.Hold).Serve(doorsCtx, doors)
	})
	ready()
	err = srv.Serve(l)
	s.stop()
	endDoors()
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return doorsErr
	}
	return errors.Join(fmt.Errorf("serve: %w", err), doorsErr)
}
