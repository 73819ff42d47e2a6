// Package shares serves directories of the host to a pod. It starts, finds and restarts the pod's own server
// process (package share).
package shares

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/share"
)

// Pod is the interface to the pod.
type Pod interface {
	// Record returns the pod's current record. Up reports whether its VM runs.
	Record() store.Pod
	Up() bool
	// Serving records the process that serves the pod.
	Serving(process procid.ID) error
	// Journal records that there may be a server, before it starts.
	Journal(ctx context.Context) error
	// Spawn runs f in a goroutine. Its context ends with the engine; it returns an error if that has ended already.
	Spawn(f func(ctx context.Context)) error
}

// Host describes the host's side of the directories.
type Host struct {
	Program  string // of package share
	StateDir string // of the pod
	Rules    place.Rules
	// Volumes are the named volumes, which lie among Bulkhead's own directories.
	Volumes *named.Store
	Logger  *slog.Logger
}

// Set manages the shared directories of one pod. Its methods are safe for concurrent use.
type Set struct {
	pod  Pod
	host Host

	turn chan struct{} // a semaphore for starting a server and its watch
	// journaled reports that the pod's journal has the entry that ends a server; guarded by turn.
	journaled bool

	mu      sync.Mutex // guards the fields below; no waiting while it is held
	all     map[string]store.Share
	users   userns.Mappings // of the server's user namespace; zero means the engine's
	server  procid.ID
	placed  map[string]bool // directories that this engine has passed to the server
	warned  map[string]bool // directories with a logged failure
	watched procid.ID
	ring    *os.File      // for servers' large answers; may be nil
	pause   time.Duration // before the last restart
}

// New returns the shared directories of a pod, none at first.
func New(pod Pod, host Host) *Set {
	return &Set{
		pod: pod, host: host, turn: make(chan struct{}, 1),
		all: map[string]store.Share{}, placed: map[string]bool{}, warned: map[string]bool{},
	}
}

// Of returns the shared directories of mounts by path, without duplicates. It creates a missing one, unless it is
// the root or must exist. Its errors have the codes of path errors. All paths belong to the staging namespace, unless that
// is the zero value.
func (s *Set) Of(
	ctx context.Context, staging store.Staging, root containerv1.Root, mounts []containerv1.Mount,
) (all []store.Share, err error) {
	if staging != (store.Staging{}) {
		if staging.Users, err = usersOf(staging.Holder); err == nil {
			err = admit(s.host.StateDir, staging.Users)
		}
		if err != nil {
			return nil, failure.Wrap(err, "the users of the container")
		}
	}
	add := func(one store.Share) error {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
		return nil
	}
	find := func(source containerv1.Share, m containerv1.Mount) error {
		how := place.OpenOptions{Part: m.SubPath, Missing: place.MakeDir}
		if m.Destination == "" || source.Present { // a root must exist
			how.Missing = place.Fail
		}
		cache, err := share.ParseCache(source.Cache)
		if err != nil {
			return &failure.Error{Class: errdefs.ErrInvalidArgument, Text: fmt.Sprintf("host path %.200q", source.Name), Err: err}
		}
		one := asked(source, m, cache)
		if one.Staging = staging; staging != (store.Staging{}) {
			one.Path, one.SetID = source.Name, source.SetID
			return add(one)
		}
		how.Whole = source.Present && one.ReadOnly
		p, err := s.host.open(ctx, source.Name, how)
		if err != nil {
			return err
		}
		defer p.Close()
		if volume, ok := containerv1.VolumeOf(source.Name); ok && m.Group != 0 {
			if err := s.host.Volumes.Chown(ctx, volume, m.Group); err != nil {
				return err
			}
		}
		one.Path, one.Mount, one.SetID = p.Path, p.Mount, source.SetID
		return add(one)
	}
	if root, ok := root.(containerv1.Share); ok {
		if err := find(root, containerv1.Mount{}); err != nil {
			return nil, err
		}
	}
	for _, m := range mounts {
		if source, ok := m.Source.(containerv1.Share); ok {
			if err := find(source, m); err != nil {
				return nil, failure.Wrap(err, "mount at %s", m.Destination)
			}
		}
	}
	return all, nil
}

// asked returns a mount's share without the fields for its path.
func asked(source containerv1.Share, m containerv1.Mount, c share.Cache) store.Share {
	has := func(options ...string) bool {
		return slices.ContainsFunc(m.Options, func(o string) bool { return slices.Contains(options, o) })
	}
	return store.Share{
		Asked: source.Name, SubPath: m.SubPath, ReadOnly: has("ro", "rro"), Follow: has("rslave", "slave"), Cache: string(c),
	}
}

// Name returns the name of a shared directory in the guest.
func Name(s store.Share) string {
	path := s.Path
	if s.Staging != (store.Staging{}) {
		path = fmt.Sprintf("%d/%d%s", s.Staging.Holder.PID, s.Staging.Holder.Start, path) // the host's paths are absolute
	}
	return share.Name(path, s.ReadOnly, s.Follow, s.SetID, share.Cache(s.Cache))
}

// Named returns the mounts with the guest's names for shared directories.
func Named(mounts []containerv1.Mount, all []store.Share) ([]containerv1.Mount, error) {
	named := slices.Clone(mounts)
	for i, m := range mounts {
		source, shared := m.Source.(containerv1.Share)
		if !shared {
			continue
		}
		at := slices.IndexFunc(all, func(s store.Share) bool {
			cache, err := share.ParseCache(source.Cache)
			want := asked(source, m, cache)
			want.Path, want.Mount, want.Staging = s.Path, s.Mount, s.Staging
			return err == nil && s == want // no mount has SetID
		})
		if at < 0 {
			return nil, failure.Invalid("mount at %s: its directory of the host is not shared", m.Destination)
		}
		named[i].Source, named[i].SubPath = containerv1.Share{Name: Name(all[at])}, ""
	}
	return named, nil
}

// RootName returns the guest's name of a shared directory that is a container's root.
func RootName(root containerv1.Share, all []store.Share) (string, error) {
	cache, err := share.ParseCache(root.Cache)
	want := asked(root, containerv1.Mount{}, cache)
	want.SetID = root.SetID
	at := slices.IndexFunc(all, func(s store.Share) bool {
		want.Path, want.Mount, want.Staging = s.Path, s.Mount, s.Staging
		return err == nil && s == want
	})
	if at < 0 {
		return "", failure.Invalid("root %.200q: it is not shared", root.Name)
	}
	return Name(all[at]), nil
}

// Ensure returns when the guest can use the directories.
func (s *Set) Ensure(ctx context.Context, all []store.Share) error {
	if len(all) == 0 {
		return nil
	}
	s.mu.Lock()
	err := s.agree(all)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.serve(ctx, all)
}

// Resume serves the directories that a pod has from an earlier engine.
func (s *Set) Resume(all []store.Share) {
	if len(all) == 0 {
		return
	}
	err := s.pod.Spawn(func(ctx context.Context) {
		if err := s.Ensure(ctx, all); err != nil {
			s.host.Logger.Warn("serve the host's directories", "error", err)
			s.restart(ctx, 0)
		}
	})
	if err != nil {
		s.host.Logger.Debug("serve the host's directories", "error", err)
	}
}

// serve makes sure that a server has the asked directories, or all if asked is nil.
func (s *Set) serve(ctx context.Context, asked []store.Share) error {
	ctx, cancel := context.WithTimeout(ctx, serveTimeout)
	defer cancel()
	server, started, err := s.running(ctx)
	if err == nil && (!started || asked != nil) {
		err = s.attach(ctx, server, asked)
	}
	return failure.Wrap(err, "serve the host's directories")
}

// running returns the running server, or starts one with all directories.
func (s *Set) running(ctx context.Context) (server procid.ID, started bool, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return server, false, failure.Wrap(ctx.Err(), "wait for the server's start")
	}
	server = s.pod.Record().ShareServer
	s.awaitOrphan(ctx, server)
	if !server.Alive() {
		started = true
		if server, err = s.start(ctx); err != nil {
			return server, started, err
		}
	} else if err := s.check(server); err != nil {
		return server, false, err
	} else {
		s.findRing(server)
	}
	return server, started, s.watch(server)
}

// serveTimeout bounds the start of a server on a host that is busy with starts of VMs.
const serveTimeout = 30 * time.Second

// A server is restarted after firstRetry. The pause doubles up to lastRetry.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
	// steady is the uptime of a server that resets the pause.
	steady = 10 * time.Second
)

// watch restarts a server after its exit, as long as the pod has a VM.
func (s *Set) watch(server procid.ID) error {
	s.mu.Lock()
	known := s.watched == server
	s.watched = server
	s.mu.Unlock()
	if known {
		return nil
	}
	began := time.Now()
	return s.pod.Spawn(func(ctx context.Context) {
		if server.Wait(ctx) != nil || ctx.Err() != nil {
			return
		}
		how := reap(server)
		if !s.pod.Up() {
			return
		}
		s.host.Logger.Warn("the server of the host's directories has ended; restarting it", "ended", how)
		s.restart(ctx, time.Since(began))
	})
}

// restart retries until the server runs, or the pod or the engine ends. served is the previous server's uptime.
func (s *Set) restart(ctx context.Context, served time.Duration) {
	for ; ; served = 0 {
		if !retry.Sleep(ctx, s.next(served), nil) || !s.pod.Up() {
			return
		}
		err := s.serve(ctx, nil)
		if err == nil {
			s.rest(ctx)
			return
		}
		s.host.Logger.Warn("serve the host's directories again", "error", err)
	}
}

// next returns the pause before another start. It grows with each start, even a successful one, because a guest can
// end its server at once.
func (s *Set) next(served time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if served >= steady {
		s.pause = 0
	}
	s.pause = min(max(2*s.pause, firstRetry), lastRetry)
	return s.pause
}

// socket returns the socket on which the VM listens for its server.
func (s *Set) socket() (dir, name string) { return s.host.StateDir, filepath.Join("vm", socketName) }
