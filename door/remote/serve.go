package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/hub"
)

// shutdownWait bounds the wait for running calls when Serve ends.
const shutdownWait = 5 * time.Second

// backlog is the number of events that the service may lag behind.
const backlog = 64

// Serve serves the unix socket l until ctx ends, and closes it. It refuses clients of users other than the process's
// own and root. It returns nil when ctx ends.
func (s *Service) Serve(ctx context.Context, l net.Listener) error {
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixCredentialsFunc(ours)))
	if err != nil {
		return errors.Join(fmt.Errorf("serve doors: %w", err), l.Close())
	}
	enginev1.RegisterEngineService(server, s)
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { s.holdWhileUsed(ctx) })
	work.Go(func() {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
		defer cancel()
		// Longer calls are cut off, but the engine finishes their work.
		_ = errors.Join(server.Shutdown(stop), server.Close())
	})
	err = server.Serve(ctx, l)
	s.cease()
	cancel()
	work.Wait()
	if errors.Is(err, ttrpc.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve doors: %w", err)
}

func ours(peer *unix.Ucred) error {
	if peer.Uid == 0 || int(peer.Uid) == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("the client is neither this process's user nor root: user %d", peer.Uid)
}

// holdWhileUsed holds the process while a door's pod runs, whether this process started or adopted the pod. It returns when
// ctx ends.
func (s *Service) holdWhileUsed(ctx context.Context) {
	defer s.releaseHold()
	for {
		sub, err := s.engine.Subscribe(backlog)
		if err != nil {
			return // the engine is closed
		}
		s.updateHold()
		s.listen(ctx, sub)
		sub.Close()
		if !errors.Is(sub.Err(), hub.ErrBehind) || ctx.Err() != nil {
			return
		}
	}
}

// listen updates the hold after each event of a door's pod, until ctx or sub ends.
func (s *Service) listen(ctx context.Context, sub *hub.Subscription[engine.Event]) {
	for {
		select {
		case event, ok := <-sub.Events():
			if !ok {
				return
			}
			if door, _ := event.Pod.Door(); door != "" && event.ID == event.Pod.ID {
				s.updateHold()
			}
		case <-ctx.Done():
			return
		}
	}
}

// updateHold takes the hold on the process if a door's pod runs, and releases it otherwise.
func (s *Service) updateHold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := slices.ContainsFunc(s.engine.Pods(), func(p engine.Pod) bool {
		door, _ := p.Door()
		return door != "" && p.Ready
	})
	if running && s.release == nil {
		s.release = s.hold()
	}
	if !running {
		s.releaseLocked()
	}
}

func (s *Service) releaseHold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked()
}

// releaseLocked releases the hold. It is called with mu held.
func (s *Service) releaseLocked() {
	if s.release != nil {
		s.release()
		s.release = nil
	}
}
