// Package shares has directories of the host served to a pod, by a process of the pod's own
// (package share), which it starts, finds again and starts anew.
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

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/share"
)

// Pod is what directories are served to.
type Pod interface {
	// Record is the pod's as it is now, Up whether its machine runs.
	Record() store.Pod
	Up() bool
	// Serving notes which process serves it.
	Serving(process procid.ID) error
	// Journal notes, before there is a process, that there may be one.
	Journal(ctx context.Context) error
	// Spawn runs f beside its caller. Its context ends with the engine; an error says
	// that it has ended already.
	Spawn(f func(ctx context.Context)) error
}

// Host is where the directories lie, and who serves them.
type Host struct {
	Program  string // of package share
	StateDir string // of the pod
	Rules    place.Rules
	// Volumes are those with names, which lie among what is Bulkhead's own.
	Volumes *named.Store
	Logger  *slog.Logger
}

// Set is the shared directories of one pod. Its methods may be called at once.
type Set struct {
	pod  Pod
	host Host

	turn chan struct{} // has room for who starts a server and has it watched
	// journaled tells that the pod's journal has the entry that ends a server; the turn's.
	journaled bool

	mu      sync.Mutex // of what follows; nobody waits for anything while it is held
	all     map[string]store.Share
	server  procid.ID
	placed  map[string]bool // what this engine has given the server
	warned  map[string]bool // what could not be given
	watched procid.ID
	ring    *os.File      // through which servers answer large reads, nil for none
	pause   time.Duration // before the last start of another server
}

// New returns the shared directories of a pod: none as yet.
func New(pod Pod, host Host) *Set {
	return &Set{
		pod: pod, host: host, turn: make(chan struct{}, 1),
		all: map[string]store.Share{}, placed: map[string]bool{}, warned: map[string]bool{},
	}
}

// Of are the shared directories that mounts are of, without repetition, each by its path. One
// that is missing is made, unless it is the root or has to be present. Its errors have the codes of what is wrong with a path.
func (s *Set) Of(ctx context.Context, root containerv1.Root, mounts []containerv1.Mount) (all []store.Share, err error) {
	add := func(source containerv1.Share, m containerv1.Mount) error {
		how := place.How{Part: m.SubPath, Missing: place.MakeDir}
		if m.Destination == "" || source.Present { // a root has to be there
			how.Missing = place.Fail
		}
		cache, err := share.ParseCache(source.Cache)
		if err != nil {
			return &failure.Error{Code: codes.InvalidArgument, Text: fmt.Sprintf("host path %.200q", source.Name), Err: err}
		}
		one := asked(source, m, cache)
		how.Whole = source.Present && one.ReadOnly
		p, err := s.host.open(ctx, source.Name, how)
		if err != nil {
			return err
		}
		defer p.Close()
		if volume, ok := containerv1.VolumeOf(source.Name); ok && m.Group != 0 {
			if err := s.host.Volumes.Give(ctx, volume, m.Group); err != nil {
				return err
			}
		}
		one.Path, one.Mount, one.SetID = p.Path, p.Mount, source.SetID
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
		return nil
	}
	if root, ok := root.(containerv1.Share); ok {
		if err := add(root, containerv1.Mount{}); err != nil {
			return nil, err
		}
	}
	for _, m := range mounts {
		if source, ok := m.Source.(containerv1.Share); ok {
			if err := add(source, m); err != nil {
				return nil, failure.Wrap(err, "mount at %s", m.Destination)
			}
		}
	}
	return all, nil
}

// asked is how a mount has its directory, without where that is found.
func asked(source containerv1.Share, m containerv1.Mount, c share.Cache) store.Share {
	has := func(options ...string) bool {
		return slices.ContainsFunc(m.Options, func(o string) bool { return slices.Contains(options, o) })
	}
	return store.Share{
		Asked: source.Name, SubPath: m.SubPath, ReadOnly: has("ro", "rro"), Follow: has("rslave", "slave"), Cache: string(c),
	}
}

// Name is what a shared directory is called in the guest.
func Name(s store.Share) string {
	return share.Name(s.Path, s.ReadOnly, s.Follow, s.SetID, share.Cache(s.Cache))
}

// Named is a specification whose mounts of shared directories have the guest's names for them.
func Named(spec *specs.Spec, all []store.Share) (*specs.Spec, error) {
	if len(all) == 0 {
		return spec, nil
	}
	named := *spec
	named.Mounts = slices.Clone(spec.Mounts)
	for i, mount := range named.Mounts {
		m, ours, err := containerv1.ParseMount(mount.Destination, mount.Type, mount.Source, mount.Options)
		source, shared := m.Source.(containerv1.Share)
		if err != nil || !ours || !shared {
			continue
		}
		at := slices.IndexFunc(all, func(s store.Share) bool {
			cache, err := share.ParseCache(source.Cache)
			want := asked(source, m, cache)
			want.Path, want.Mount = s.Path, s.Mount
			return err == nil && s == want // no mount has SetID
		})
		if at < 0 {
			return nil, failure.Invalid("mount at %s: its directory of the host is not shared", m.Destination)
		}
		m.Source, m.SubPath = containerv1.Share{Name: Name(all[at])}, ""
		named.Mounts[i].Type, named.Mounts[i].Source, named.Mounts[i].Options = m.Encode()
	}
	return &named, nil
}

// RootName is the guest's name for a shared directory that is a container's root.
func RootName(root containerv1.Share, all []store.Share) (string, error) {
	cache, err := share.ParseCache(root.Cache)
	want := asked(root, containerv1.Mount{}, cache)
	want.SetID = root.SetID
	at := slices.IndexFunc(all, func(s store.Share) bool {
		want.Path, want.Mount = s.Path, s.Mount
		return err == nil && s == want
	})
	if at < 0 {
		return "", failure.Invalid("root %.200q: it is not shared", root.Name)
	}
	return Name(all[at]), nil
}

// Ensure returns when the guest can have those directories.
func (s *Set) Ensure(ctx context.Context, all []store.Share) error {
	if len(all) == 0 {
		return nil
	}
	s.mu.Lock()
	for _, one := range all {
		s.all[Name(one)] = one
	}
	s.mu.Unlock()
	return s.serve(ctx, all)
}

// Resume goes on where an earlier engine stopped, whose pod has those directories.
func (s *Set) Resume(all []store.Share) {
	if len(all) == 0 {
		return
	}
	err := s.pod.Spawn(func(ctx context.Context) {
		if err := s.Ensure(ctx, all); err != nil {
			s.host.Logger.Warn("serve the host's directories", "error", err)
			s.again(ctx, 0)
		}
	})
	if err != nil {
		s.host.Logger.Debug("serve the host's directories", "error", err)
	}
}

// serve has a server run that has those directories, or with nil all that there are.
func (s *Set) serve(ctx context.Context, asked []store.Share) error {
	ctx, cancel := context.WithTimeout(ctx, serveTimeout)
	defer cancel()
	server, started, err := s.running(ctx)
	if err == nil && (!started || asked != nil) {
		err = s.attach(ctx, server, asked)
	}
	return failure.Wrap(err, "serve the host's directories")
}

// running is the server that runs, or is started with all that there is.
func (s *Set) running(ctx context.Context) (server procid.ID, started bool, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return server, false, failure.Wrap(ctx.Err(), "wait for the server's start")
	}
	if server = s.pod.Record().ShareServer; !server.Alive() {
		started = true
		if server, err = s.start(ctx); err != nil {
			return server, started, err
		}
	} else {
		s.findRing(server)
	}
	return server, started, s.watch(server)
}

// serveTimeout bounds the start of a server, on a host that is busy with other VMs' starts.
const serveTimeout = 30 * time.Second

// A server that ends is started again after these times.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
	// steady is how long one serves after which the first of them is next.
	steady = 10 * time.Second
)

// watch starts another server when this one has ended, for as long as the pod has a machine.
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
		s.host.Logger.Warn("the server of the host's directories has ended, and is started again", "ended", how)
		s.again(ctx, time.Since(began))
	})
}

// again serves until it succeeds, or the pod or the engine ends, after a server that has served
// for so long.
func (s *Set) again(ctx context.Context, served time.Duration) {
	for ; ; served = 0 {
		select {
		case <-time.After(s.next(served)):
		case <-ctx.Done():
			return
		}
		if !s.pod.Up() {
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

// next is the pause before another start. It grows with each, also with those that succeed: a
// guest can end its server as soon as that serves.
func (s *Set) next(served time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if served >= steady {
		s.pause = 0
	}
	s.pause = min(max(2*s.pause, firstRetry), lastRetry)
	return s.pause
}

// socket is where a machine listens for its server.
func (s *Set) socket() (dir, name string) { return s.host.StateDir, filepath.Join("vm", socketName) }
