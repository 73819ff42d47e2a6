// Package remote serves doors in other processes: it offers the engine of its process as api/engine/v1. It only
// translates. Its own state is the hold on the process while a door's pod runs.
package remote

import (
	"context"
	"sync"

	"github.com/containerd/errdefs"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// Service serves the doors of other processes. It is safe for concurrent use, and holds the process during each call. A
// start or end of a pod runs to its end even if its client disconnects.
type Service struct {
	engine *engine.Engine
	hold   func() (release func())
	// serving ends with Serve. Calls that wait for the engine end with it.
	serving context.Context
	cease   context.CancelFunc

	mu      sync.Mutex
	release func() // nil if no pod holds the process
}

var _ enginev1.EngineService = (*Service)(nil)

// New returns a service for the pods of e. The caller closes e after Serve has returned. The process must stay until
// every hold is released.
func New(e *engine.Engine, hold func() (release func())) *Service {
	s := &Service{engine: e, hold: hold}
	s.serving, s.cease = context.WithCancel(context.Background())
	return s
}

// keepServing holds the process until done is called. The returned context ends with Serve, not with the call's client.
func (s *Service) keepServing(ctx context.Context) (lasting context.Context, done func()) {
	release := s.hold()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(s.serving, cancel)
	return ctx, func() { stop(); cancel(); release() }
}

// Start implements enginev1.EngineService.
func (s *Service) Start(ctx context.Context, r *enginev1.StartRequest) (*enginev1.StartResponse, error) {
	ctx, done := s.keepServing(ctx)
	defer done()
	if err := check(r); err != nil {
		return nil, err
	}
	req, err := podRequest(r)
	if err != nil {
		return nil, failure.Wrap(err, "pod %q", r.GetKey())
	}
	id, err := s.engine.StartPod(ctx, req)
	if err != nil {
		return nil, failure.Wrap(err, "start")
	}
	s.updateHold() // before this call's own hold is released
	p, err := s.find(r.GetDoor(), func(p *engine.Pod) bool { return p.ID == id })
	if err != nil {
		return nil, err // removed meanwhile
	}
	return &enginev1.StartResponse{Pod: s.message(p)}, nil
}

// Adopt implements enginev1.EngineService. It waits for a start in progress: its client may have died.
func (s *Service) Adopt(ctx context.Context, r *enginev1.AdoptRequest) (*enginev1.AdoptResponse, error) {
	defer s.hold()()
	if err := check(r); err != nil {
		return nil, err
	}
	if (r.GetId() == "") == (r.GetKey() == "") {
		return nil, failure.Invalid("adopt: give either an id or a key")
	}
	key := engine.DoorKey(r.GetDoor(), r.GetKey())
	if r.GetKey() != "" {
		if err := s.engine.AwaitStart(ctx, key); err != nil {
			return nil, failure.Wrap(err, "adopt %.80q", r.GetKey())
		}
	}
	p, err := s.find(r.GetDoor(), func(p *engine.Pod) bool {
		if r.GetId() != "" {
			return p.ID == r.GetId()
		}
		return p.Key == key
	})
	if err != nil {
		return nil, failure.Wrap(err, "adopt %.80q", r.GetId()+r.GetKey())
	}
	return &enginev1.AdoptResponse{Pod: s.message(p)}, nil
}

// List implements enginev1.EngineService.
func (s *Service) List(_ context.Context, r *enginev1.ListRequest, out enginev1.Engine_ListServer) error {
	defer s.hold()()
	if err := check(r); err != nil {
		return err
	}
	for _, p := range s.engine.Pods() {
		if door, _ := p.Door(); door != r.GetDoor() {
			continue
		}
		if err := out.Send(&enginev1.ListResponse{Pod: s.message(&p)}); err != nil {
			return failure.Wrap(err, "list")
		}
	}
	return nil
}

// Stop implements enginev1.EngineService.
func (s *Service) Stop(ctx context.Context, r *enginev1.StopRequest) (*enginev1.StopResponse, error) {
	if err := s.stopOrRemove(ctx, r, s.engine.StopPod); err != nil {
		return nil, failure.Wrap(err, "stop")
	}
	return &enginev1.StopResponse{}, nil
}

// Remove implements enginev1.EngineService.
func (s *Service) Remove(ctx context.Context, r *enginev1.RemoveRequest) (*enginev1.RemoveResponse, error) {
	if err := s.stopOrRemove(ctx, r, s.engine.RemovePod); err != nil {
		return nil, failure.Wrap(err, "remove")
	}
	return &enginev1.RemoveResponse{}, nil
}

// stopOrRemove stops or removes a pod with do. It does nothing if the door has no such pod.
func (s *Service) stopOrRemove(ctx context.Context, r podReference, do func(context.Context, string) error) error {
	ctx, done := s.keepServing(ctx)
	defer done()
	if err := check(r); err != nil {
		return err
	}
	if r.GetId() == "" {
		return failure.Invalid("the pod id is missing")
	}
	p, err := s.find(r.GetDoor(), func(p *engine.Pod) bool { return p.ID == r.GetId() })
	if failure.NotFound(err) {
		return nil
	}
	if err == nil {
		err = do(ctx, p.ID)
	}
	return err
}

// find returns the door's pod that matches wanted.
func (s *Service) find(door string, wanted func(*engine.Pod) bool) (*engine.Pod, error) {
	for _, p := range s.engine.Pods() {
		if of, _ := p.Door(); of == door && wanted(&p) {
			return &p, nil
		}
	}
	return nil, failure.New(errdefs.ErrNotFound, "pod not found")
}
