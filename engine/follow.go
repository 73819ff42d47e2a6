package engine

import (
	"context"
	"time"

	"github.com/containerd/containerd/api/events"
	"google.golang.org/protobuf/proto"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/unwind"
	"github.com/bulkhead-project/bulkhead/internal/retry"
	shimevents "github.com/bulkhead-project/bulkhead/shim/events"
)

// retries are the pauses before an adoption or a stop is retried.
var retries = retry.Pauses{First: 100 * time.Millisecond, Last: 30 * time.Second}

// watchShim handles the shim's events until the pod is stopped or the engine is closed. It replaces a dead shim.
func (p *pod) watchShim() {
	ctx := p.e.ctx
	p.volumes.Resume(p.files())
	p.shares.Resume(p.shared())
	retries := retries
	for p.pace.Wait(ctx) == nil && p.snapshot().Phase == store.Ready {
		c, err := p.shim()
		if err == nil {
			retries.Reset()
			stop := p.followNetwork(ctx, c)
			err = p.listen(ctx, c)
			stop()
		}
		if ctx.Err() != nil || p.snapshot().Phase != store.Ready {
			return
		}
		if p.ended() {
			p.stopWithRetries(ctx)
			return
		}
		if err := p.adopt(ctx, err); err != nil {
			p.e.log.Error("restart a pod's shim", "pod", p.id, "error", err)
			p.mu.Lock()
			p.stuck = err
			p.wake()
			p.mu.Unlock()
			retry.Sleep(ctx, retries.Next(), nil)
		}
	}
}

// files returns the volumes of files that the pod's containers mount.
func (p *pod) files() []store.Files {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []store.Files
	for _, ctr := range p.containers {
		all = append(all, ctr.Files...)
	}
	return all
}

// shared returns the directories of the host that the pod's containers mount.
func (p *pod) shared() []store.Share {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []store.Share
	for _, ctr := range p.containers {
		all = append(all, ctr.Shares...)
	}
	return all
}

// listen reconciles after each event. It returns nil when the VM has ended, or the stream's error.
func (p *pod) listen(ctx context.Context, c *link.Conn) error {
	stream, err := c.Ext.Events(ctx, &shimv1.EventsRequest{})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		if !changesState(event) {
			continue
		}
		if err := p.pace.Wait(ctx); err != nil {
			return err
		}
		if err := p.reconcile(ctx, c); err != nil {
			return err
		}
		if p.snapshot().Exit != "" {
			return nil
		}
	}
}

// changesState reports whether an event changes the state of a container.
func changesState(e *shimv1.Event) bool {
	switch e.GetTopic() {
	case shimevents.TopicExecAdded, shimevents.TopicExecStarted, shimevents.TopicCreate, shimevents.TopicDelete,
		shimevents.TopicSandboxCreate:
		return false
	case shimevents.TopicExit:
		var exit events.TaskExit
		if proto.Unmarshal(e.GetEvent().GetValue(), &exit) == nil && exit.ID != exit.ContainerID {
			return false // of an exec process
		}
	}
	return true
}

// stopWithRetries stops a pod after its VM ended by itself or a stop failed. It retries until the stop succeeds.
func (p *pod) stopWithRetries(ctx context.Context) {
	_ = retries.Until(ctx, nil, func() error {
		ctx, cancel := context.WithTimeout(ctx, 2*unwind.Timeout)
		defer cancel()
		return p.stop(ctx)
	}, func(err error) { p.e.log.Error("clean up after a VM that has ended", "pod", p.id, "error", err) })
}

// adopt connects to the pod's shim, and starts a new one if it has died.
func (p *pod) adopt(ctx context.Context, lost error) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.done()
	if p.snapshot().Phase != store.Ready || p.ended() {
		return nil
	}
	p.e.log.Warn("lost a pod's shim", "pod", p.id, "error", lost)
	p.release()
	ctx, cancel := context.WithTimeout(ctx, unwind.Timeout)
	defer cancel()
	_, err := p.connect(ctx)
	return err
}
