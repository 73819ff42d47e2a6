package cri

import (
	"slices"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// foreign reports whether a door in another process started the pod. The CRI's clients neither see nor end such pods.
func foreign(p *engine.Pod) bool {
	door, _ := p.Door()
	return door != ""
}

// all returns the CRI's pods, in no order.
func (s *Service) all() []engine.Pod {
	return slices.DeleteFunc(s.engine.Pods(), func(p engine.Pod) bool { return foreign(&p) })
}

// find returns the CRI's pod for an id or an unambiguous prefix.
func (s *Service) find(id string) (engine.Pod, error) {
	p, err := s.engine.Pod(id)
	if err == nil && foreign(&p) {
		return engine.Pod{}, failure.New(errdefs.ErrNotFound, "pod sandbox %.80s: not found", id)
	}
	return p, err
}
