package sandbox

import (
	"context"
	"fmt"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Pack begins to read a tree of a container's files, also of one that has ended,
// whose volumes are gone then. ctx covers only the beginning. The caller closes
// the tree, whose entries are the guest's word: names may be anything.
func (s *Sandbox) Pack(ctx context.Context, id, path string) (*agentv1.TreeReader, error) {
	p, m, ctx, done, err := s.live(ctx, "copy from", Process{Container: id}, Ready, Running, Stopped)
	if err != nil {
		return nil, err
	}
	defer done()
	t, err := m.agent.Pack(ctx, agentv1.Pack{Container: id, Path: path})
	if err != nil {
		return nil, fmt.Errorf("copy from %s: %w", p.subject(), m.fault(err))
	}
	return t, nil
}

// Unpack begins to write a tree into a container; see agentv1.Unpack. ctx covers
// only the beginning. The caller closes the tree.
func (s *Sandbox) Unpack(ctx context.Context, id, path string, into bool) (*agentv1.TreeWriter, error) {
	p, m, ctx, done, err := s.live(ctx, "copy to", Process{Container: id}, Ready, Running, Stopped)
	if err != nil {
		return nil, err
	}
	defer done()
	t, err := m.agent.Unpack(ctx, agentv1.Unpack{Container: id, Path: path, Into: into})
	if err != nil {
		return nil, fmt.Errorf("copy to %s: %w", p.subject(), m.fault(err))
	}
	return t, nil
}

// Usage are the pod's counters, as the guest tells them.
func (s *Sandbox) Usage(ctx context.Context) (agentv1.Usage, error) {
	m, err := s.running("read the counters of", Running)
	if err != nil {
		return agentv1.Usage{}, err
	}
	ctx, done := m.call(ctx, s.o.CallTimeout)
	defer done()
	u, err := m.agent.Usage(ctx)
	return u, m.fault(err)
}
