package shutdown

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testlogind"
)

// world is the node that a Manager acts on.
type world struct {
	mu      sync.Mutex
	ended   []string
	warned  []string
	changes chan bool
	m       *Manager
}

func newWorld(ctx context.Context, t *testing.T, address string, period, critical time.Duration) *world {
	t.Helper()
	w := &world{changes: make(chan bool, 8)}
	grace := int64(2)
	pod := func(name string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.Spec.TerminationGracePeriodSeconds = name, &grace
		return p
	}
	w.m = New(Options{
		Period: period, Critical: critical, Address: address,
		Pods:       func() []*corev1.Pod { return []*corev1.Pod{pod("critical"), pod("slow"), pod("quick")} },
		IsCritical: func(p *corev1.Pod) bool { return p.Name == "critical" },
		End: func(ctx context.Context, p *corev1.Pod, grace int64) error {
			var err error
			if p.Name == "slow" {
				<-ctx.Done()
				err = ctx.Err()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ended = append(w.ended, fmt.Sprintf("%s %d", p.Name, grace))
			return err
		},
		Changed: func() { _, ending := w.m.Ending(); w.changes <- ending },
		Warn: func(reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.warned = append(w.warned, reason+": "+message)
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { w.m.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// changed waits for the next change.
func (w *world) changed(ctx context.Context, t *testing.T, want bool) {
	t.Helper()
	select {
	case got := <-w.changes:
		if got != want {
			t.Errorf("ending: %t, want %t", got, want)
		}
	case <-ctx.Done():
		t.Fatal("no change")
	}
}

// TestShutdown: the shutdown is delayed until the pods have ended or their time is over, critical pods last. After a
// cancelled shutdown, the next one is delayed again.
func TestShutdown(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 30*time.Second)
	address := testlogind.Bus(t)
	l := testlogind.Start(t, address, time.Minute, false)
	w := newWorld(ctx, t, address, 3*time.Second, 2*time.Second)
	lock := l.Lock(ctx, t)
	l.Prepare(t, true)
	w.changed(ctx, t, true)
	lock.Released(ctx, t)
	w.mu.Lock()
	if got := []string{"quick 1", "slow 1", "critical 2"}; !slices.Equal(w.ended, got) {
		t.Errorf("ended: %v, want %v", w.ended, got)
	}
	w.mu.Unlock()
	l.Prepare(t, false)
	w.changed(ctx, t, false)
	l.Lock(ctx, t)
}

// TestShortDelay: the Manager takes no longer than logind waits.
func TestShortDelay(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 30*time.Second)
	address := testlogind.Bus(t)
	l := testlogind.Start(t, address, time.Second, false)
	w := newWorld(ctx, t, address, time.Hour, 0)
	lock := l.Lock(ctx, t)
	began := time.Now()
	l.Prepare(t, true)
	w.changed(ctx, t, true)
	lock.Released(ctx, t)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestWithoutLogind: a missing logind is reported, and it is found when it starts.
func TestWithoutLogind(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 30*time.Second)
	address := testlogind.Bus(t)
	w := newWorld(ctx, t, address, time.Second, 0)
	for {
		w.mu.Lock()
		n := len(w.warned)
		w.mu.Unlock()
		if n > 0 {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("no warning")
		}
	}
	if !strings.HasPrefix(w.warned[0], "GracefulNodeShutdownUnavailable: pods will not be ended") {
		t.Errorf("warned: %v", w.warned)
	}
	testlogind.Start(t, address, time.Minute, false).Lock(ctx, t)
	none := newWorld(ctx, t, "unix:path="+filepath.Join(t.TempDir(), "none"), time.Second, 0)
	for {
		none.mu.Lock()
		n := len(none.warned)
		none.mu.Unlock()
		if n > 0 {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the missing bus is not reported")
		}
	}
}
