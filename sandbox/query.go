package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// ContainerStats returns a running container's statistics.
func (s *Sandbox) ContainerStats(ctx context.Context, id string) (agentv1.Stats, error) {
	p, m, ctx, done, err := s.live(ctx, "read the statistics of", Process{Container: id}, Running, Paused)
	if err != nil {
		return agentv1.Stats{}, err
	}
	defer done()
	st, err := m.Agent.Stats(ctx, p.id)
	st.At = now() // do not trust the guest's clock
	return st, m.Fault(err)
}

// Stats returns the statistics of the VM and of every running container. It skips a container that ends meanwhile.
func (s *Sandbox) Stats(ctx context.Context) (st agentv1.PodStats, err error) {
	m, err := s.running("read the statistics of", Running)
	if err != nil {
		return st, err
	}
	call, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	if st.Memory, err = m.Agent.Memory(call); err == nil {
		st.Usage, err = m.Agent.Usage(call)
	}
	if err != nil {
		return st, m.Fault(err)
	}
	st.Containers = map[string]agentv1.Stats{}
	for _, p := range s.Status().Processes {
		if p.Exec == "" && (p.State == Running || p.State == Paused) {
			if one, err := s.ContainerStats(ctx, p.Container); err == nil {
				st.Containers[p.Container] = one
			}
		}
	}
	return st, nil
}

// Pids returns the processes of a container, as numbered in the guest.
func (s *Sandbox) Pids(ctx context.Context, id string) ([]int, error) {
	p, m, ctx, done, err := s.live(ctx, "list", Process{Container: id}, Ready, Running, Paused)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := m.Agent.Pids(ctx, p.id)
	return list.Pids, m.Fault(err)
}

// Listening waits until the ports that the guest's processes listen on differ from known, and returns them.
func (s *Sandbox) Listening(ctx context.Context, known agentv1.Listening) (agentv1.Listening, error) {
	m, err := s.running("watch the ports of", Running)
	if err != nil {
		return agentv1.Listening{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.Context(), func() { cancel(context.Cause(m.Context())) })()
	now, err := m.Agent.Listening(ctx, known)
	return now, m.Fault(err)
}

// SetNetwork replaces the pod's interfaces. Taps are for the VM's further cards, in the order of their numbers. A
// running VM accepts them once, and later ones are ignored. SetNetwork closes them.
func (s *Sandbox) SetNetwork(ctx context.Context, r agentv1.SetNetwork, taps []*os.File) error {
	defer func() {
		for _, f := range taps {
			closeQuietly(f)
		}
	}()
	if err := s.acquire(ctx, "set up the network of"); err != nil {
		return err
	}
	defer s.release()
	m, err := s.running("set up the network of", Running)
	if err != nil {
		return err
	}
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	if len(taps) > 0 && len(s.config.Cards) == 0 {
		if err := s.devices.AddLater(ctx, m, taps); err != nil {
			return fmt.Errorf("set up the network of %s: %w", s.subject(), err)
		}
	}
	return m.Fault(m.Agent.SetNetwork(ctx, r))
}

// ReadFile returns at most limit bytes from the end of a container's file. The container may have ended.
func (s *Sandbox) ReadFile(ctx context.Context, id, path string, limit int) ([]byte, error) {
	_, m, ctx, done, err := s.live(ctx, "read a file of", Process{Container: id}, Ready, Running, Paused, Stopped)
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := m.Agent.ReadFile(ctx, agentv1.ReadFile{Container: id, Path: path, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("read %s of container %s: %w", path, id, m.Fault(err))
	}
	return f.Data[:min(len(f.Data), max(limit, 0))], nil
}

// WriteFiles writes files of a volume of the pod.
func (s *Sandbox) WriteFiles(ctx context.Context, f agentv1.Files) (agentv1.FilesState, error) {
	m, err := s.running("write files in", Running)
	if err != nil {
		return agentv1.FilesState{}, err
	}
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	state, err := m.Agent.Files(ctx, f)
	return state, m.Fault(err)
}

// Forward connects to a port of the pod. The connection supports CloseWrite (half close).
func (s *Sandbox) Forward(ctx context.Context, port uint16) (net.Conn, error) {
	return s.open(ctx, "forward a port of", func(c *agentv1.Client, ctx context.Context) (net.Conn, error) {
		return c.Forward(ctx, port)
	})
}

// Datagrams opens the stream of the pod's UDP ports; see agentv1.Datagram.
func (s *Sandbox) Datagrams(ctx context.Context) (net.Conn, error) {
	return s.open(ctx, "forward UDP ports of", (*agentv1.Client).Datagrams)
}

// Resolver opens the stream of the pod's DNS queries; see agentv1.MaxQueries.
func (s *Sandbox) Resolver(ctx context.Context) (net.Conn, error) {
	return s.open(ctx, "resolve names for", (*agentv1.Client).Resolver)
}

func (s *Sandbox) open(ctx context.Context, what string, open func(*agentv1.Client, context.Context) (net.Conn, error)) (net.Conn, error) {
	m, err := s.running(what, Running)
	if err != nil {
		return nil, err
	}
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	conn, err := open(m.Agent, ctx)
	return conn, m.Fault(err)
}

// Pack starts to read a tree of a container's files. A container that has ended has no volumes any more. ctx bounds
// only the start. The caller closes the tree. The guest chooses the entries, so names may be anything.
func (s *Sandbox) Pack(ctx context.Context, id, path string) (*agentv1.TreeReader, error) {
	p, m, ctx, done, err := s.live(ctx, "copy from", Process{Container: id}, Ready, Running, Stopped)
	if err != nil {
		return nil, err
	}
	defer done()
	t, err := m.Agent.Pack(ctx, agentv1.Pack{Container: id, Path: path})
	if err != nil {
		return nil, fmt.Errorf("copy from %s: %w", p.subject(), m.Fault(err))
	}
	return t, nil
}

// Unpack starts to write a tree into a container; see agentv1.Unpack. ctx bounds only the start. The caller closes the
// tree.
func (s *Sandbox) Unpack(ctx context.Context, id, path string, into bool) (*agentv1.TreeWriter, error) {
	p, m, ctx, done, err := s.live(ctx, "copy to", Process{Container: id}, Ready, Running, Stopped)
	if err != nil {
		return nil, err
	}
	defer done()
	t, err := m.Agent.Unpack(ctx, agentv1.Unpack{Container: id, Path: path, Into: into})
	if err != nil {
		return nil, fmt.Errorf("copy to %s: %w", p.subject(), m.Fault(err))
	}
	return t, nil
}
