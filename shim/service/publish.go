package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Bounds of published ports.
const (
	// maxForwards bounds the connections of all published ports. Further ones wait in their listener's backlog. Each is
	// a stream of the channel; half of the streams are reserved for other uses.
	maxForwards = channel.MaxStreams / 2

	connectTimeout = 10 * time.Second
)

// Publish forwards the connections of a sent listening socket, until the shim ends.
func (e extension) Publish(_ context.Context, r *shimv1.PublishRequest) (*shimv1.PublishResponse, error) {
	if r.PodPort == 0 || r.PodPort > 0xffff {
		return nil, invalid("publish port %d: must be 1 to 65535", r.PodPort)
	}
	f, err := e.o.Files.Remove(r.File)
	if err != nil {
		return nil, toStatus(err)
	}
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return nil, toStatus(fmt.Errorf("publish port %d: %w: %w", r.PodPort, errdefs.ErrInvalidArgument, err))
	}
	if old := e.published.swap(r.File, l); old != nil {
		old.Close()
	}
	e.wg.Add(1)
	go e.accept(l, uint16(r.PodPort))
	return &shimv1.PublishResponse{}, nil
}

// Unpublish closes such a listener. Accepted connections stay open.
func (e extension) Unpublish(_ context.Context, r *shimv1.UnpublishRequest) (*shimv1.UnpublishResponse, error) {
	if l := e.published.swap(r.File, nil); l != nil {
		l.Close()
	}
	return &shimv1.UnpublishResponse{}, nil
}

// Listening waits until the listening ports differ from the request's.
func (e extension) Listening(ctx context.Context, r *shimv1.ListeningRequest) (*shimv1.ListeningResponse, error) {
	var known agentv1.Listening
	if err := json.Unmarshal(r.Known, &known); err != nil {
		return nil, invalid("watch the ports: read the known ones: %v", err)
	}
	now, err := e.o.Sandbox.Listening(ctx, known)
	if err != nil {
		return nil, toStatus(err)
	}
	raw, err := json.Marshal(now)
	if err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.ListeningResponse{Now: raw}, nil
}

// UpdateNetwork replaces the pod's interfaces.
func (e extension) UpdateNetwork(ctx context.Context, r *shimv1.UpdateNetworkRequest) (*shimv1.UpdateNetworkResponse, error) {
	var set agentv1.SetNetwork
	if err := json.Unmarshal(r.Interfaces, &set); err != nil {
		return nil, invalid("update the network: read the interfaces: %v", err)
	}
	if len(set.Interfaces) > card.Most+1 || r.Taps > card.Most {
		return nil, invalid("update the network: %d interfaces and %d taps: must be at most %d and %d",
			len(set.Interfaces), r.Taps, card.Most+1, card.Most)
	}
	var names []string
	for i := range r.Taps {
		names = append(names, layout.Card(int(i)))
	}
	taps, err := e.removeFiles(names...)
	if err == nil {
		err = e.o.Sandbox.SetNetwork(ctx, set, taps)
	}
	if err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.UpdateNetworkResponse{}, nil
}

// published holds the listening sockets by the names of their files.
type published struct {
	mu  sync.Mutex
	all map[string]net.Listener
}

// swap replaces the listener of that name by l, which may be nil, and returns the old one.
func (p *published) swap(name string, l net.Listener) net.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.all[name]
	delete(p.all, name)
	if l != nil {
		if p.all == nil {
			p.all = map[string]net.Listener{}
		}
		p.all[name] = l
	}
	return old
}

func (e extension) accept(l net.Listener, port uint16) {
	defer e.wg.Done()
	stop := context.AfterFunc(e.ctx, func() { l.Close() })
	defer stop()
	for e.slots.acquire(e.ctx) {
		conn, err := l.Accept()
		if err != nil {
			e.slots.release()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			e.o.Logger.Warn("accept on a published port", "port", port, "error", err)
			if !pause(e.ctx, time.Second) { // most likely out of descriptors
				return
			}
			continue
		}
		e.wg.Add(1)
		go func() {
			defer e.wg.Done()
			defer e.slots.release()
			e.serve(conn, port)
		}()
	}
}

func (e extension) serve(conn net.Conn, port uint16) {
	ctx, cancel := context.WithTimeout(e.ctx, connectTimeout)
	guest, err := e.o.Sandbox.Forward(ctx, port)
	cancel()
	if err != nil {
		e.o.Logger.Debug("forward a connection", "port", port, "error", err)
		conn.Close()
		return
	}
	stream.Splice(e.ctx, conn, guest)
}

// slots bounds the open connections.
type slots chan struct{}

func (s slots) acquire(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s slots) release() { <-s }

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
