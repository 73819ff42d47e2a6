package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/store"
)

// TestFind checks that a pod is found by its id or a unique prefix, and that a full id takes precedence.
func TestFind(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	for _, id := range []string{"aa1", "aa2", "b1", "aa"} {
		p := newPod(e, &store.Pod{ID: id, Phase: store.Stopped})
		c := &container{pod: p, Stored: store.Stored{Container: store.Container{ID: "c" + id}}}
		p.containers[c.ID] = c
		e.hold(p)
	}
	one := e.pods["b1"]
	one.containers["cb2"] = &container{pod: one, Stored: store.Stored{Container: store.Container{ID: "cb2"}}}
	for _, tc := range []struct {
		id   string
		want string
		code codes.Code
	}{
		{"aa1", "aa1", codes.OK},
		{"aa", "aa", codes.OK},
		{"b", "b1", codes.OK},
		{"a", "", codes.InvalidArgument},
		{"", "", codes.InvalidArgument},
		{"c", "", codes.NotFound},
	} {
		for range 5 { // maps have no order
			p, err := e.find(tc.id)
			if codeOf(err) != tc.code || err == nil && p.id != tc.want {
				t.Errorf("pod %q: %v", tc.id, err)
			}
		}
	}
	for _, tc := range []struct {
		id   string
		want string
		code codes.Code
	}{
		{"caa1", "caa1", codes.OK},
		{"cb1", "cb1", codes.OK},
		{"cb", "", codes.InvalidArgument},
		{"caa2", "caa2", codes.OK},
		{"ca", "", codes.InvalidArgument},
		{"", "", codes.InvalidArgument},
		{"d", "", codes.NotFound},
	} {
		for range 5 {
			c, err := e.findContainer(tc.id)
			if codeOf(err) != tc.code || err == nil && c.ID != tc.want {
				t.Errorf("container %q: %v", tc.id, err)
			}
		}
	}
}

// TestNotReady checks the reasons for a pod without a shim.
func TestNotReady(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	for _, tc := range []struct {
		record store.Pod
		stuck  error
		want   string
	}{
		{record: store.Pod{Phase: store.Ready, Exit: "the guest crashed"}, want: "the guest crashed"},
		{record: store.Pod{Phase: store.Stopped}, want: string(store.Stopped)},
		{record: store.Pod{Phase: store.Ready}, want: "is being replaced"},
		{record: store.Pod{Phase: store.Ready}, stuck: errInjected, want: "a new one cannot be started: injected"},
		{record: store.Pod{Phase: store.Stopped}, stuck: errInjected, want: string(store.Stopped)},
	} {
		p := newPod(e, &tc.record)
		p.stuck = tc.stuck
		_, err := p.shim()
		if codeOf(err) != codes.FailedPrecondition || !strings.HasSuffix(err.Error(), tc.want) {
			t.Errorf("%v, not %q", err, tc.want)
		}
	}
}

// TestLive checks that callers get a live shim, wait for the next one, or get an error.
func TestLive(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		do   func(p *pod)
		code codes.Code
		up   bool
	}{
		{name: "lives", do: func(*pod) {}, up: true},
		{name: "is stuck and lives", do: func(p *pod) { p.stuck = errInjected }, up: true},
		{name: "is stuck", do: func(p *pod) { p.conn, p.stuck = nil, errInjected }, code: codes.FailedPrecondition, up: true},
		{name: "has stopped", do: func(p *pod) { p.record.Phase = store.Stopped }, code: codes.FailedPrecondition},
		{name: "has ended", do: func(p *pod) { p.record.Exit = "it ended" }, code: codes.FailedPrecondition},
		{name: "is being ended", do: func(p *pod) { p.ending = true }, code: codes.FailedPrecondition, up: true},
		{name: "is removed", do: func(p *pod) { p.gone = true }, code: codes.FailedPrecondition},
		{
			name: "is replaced", up: true,
			do: func(p *pod) {
				old := p.conn
				done := make(chan struct{})
				close(done)
				old.Done = done
				go func() {
					p.mu.Lock()
					defer p.mu.Unlock()
					p.conn = (&scripted{}).conn()
					p.wake()
				}()
			},
		},
		{name: "the engine ends", do: func(p *pod) { p.conn = nil; p.e.cancel() }, code: codes.Unavailable, up: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := scriptedPod(t, &scripted{}, ContainerRunning).pod
			tc.do(p)
			c, err := p.live(t.Context())
			if codeOf(err) != tc.code || (c != nil) != (err == nil) {
				t.Errorf("%v", err)
			}
			if up, _ := (volumePod{p}).Up(); up != tc.up {
				t.Errorf("up: %v", up)
			}
		})
	}
	p := scriptedPod(t, &scripted{}, ContainerRunning).pod
	p.conn = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.live(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if err := p.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("two at once: %v", err)
	}
	for name, do := range map[string]func() error{
		"stop":   func() error { return p.stop(ctx) },
		"remove": func() error { return p.remove(ctx) },
		"resize": func() error { return p.e.ResizePod(ctx, p.id, Size{}, nil) },
		"adopt":  func() error { return p.adopt(ctx, errInjected) },
	} {
		if err := do(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s beside another operation: %v", name, err)
		}
	}
	p.done()
}
