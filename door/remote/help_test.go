package remote_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/remote"
	run "github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/door/run/socket"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testremote"
)

// process is an engine process: an engine and its socket for doors.
type process struct {
	o     engine.Options
	e     *engine.Engine
	holds atomic.Int32 // holds on the process
	end   func()       // ends the process but not its pods
}

// serve runs a process with an engine until end or the end of the test.
func serve(t *testing.T, o engine.Options) *process {
	t.Helper()
	p := &process{o: o}
	ctx := testdeadline.Context(t, time.Minute)
	var err error
	if p.e, err = engine.Open(ctx, o); err != nil {
		t.Fatal(err)
	}
	if err := dirs.Ensure(o.Roots.Instance(run.Instance), 0o711); err != nil {
		t.Fatal(err)
	}
	l, err := socket.Listen(t.Context(), run.EngineSocket(o.Roots))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- remote.New(p.e, p.hold).Serve(ctx, l) }()
	ended := false
	p.end = func() {
		if ended {
			return
		}
		ended = true
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := p.e.Close(context.Background()); err != nil {
			t.Errorf("close the engine: %v", err)
		}
		if n := p.holds.Load(); n != 0 {
			t.Errorf("%d holds are left after the process has ended", n)
		}
	}
	t.Cleanup(p.end)
	return p
}

func (p *process) hold() (release func()) {
	p.holds.Add(1)
	return func() { p.holds.Add(-1) }
}

// kept waits until the process has that many holds.
func (p *process) kept(t *testing.T, want int32) {
	t.Helper()
	for deadline := time.Now().Add(testdeadline.For(20 * time.Second)); p.holds.Load() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d holds on the process, want %d", p.holds.Load(), want)
		}
	}
}

// door returns the client of a door, which does not start an engine.
func (p *process) door(name string) *testremote.Client { return testremote.New(p.o.Roots, name, nil) }

// fake returns a fake world and the options of an engine in it.
func fake(t *testing.T) (*enginetest.World, engine.Options) {
	t.Helper()
	w := enginetest.New()
	return w, w.In(enginetest.Options(t, enginetest.Roots(t)))
}

// request returns a request for a pod.
func request(key string) *enginev1.StartRequest {
	return &enginev1.StartRequest{
		Key: key, Record: []byte("\x00 of " + key),
		Identity: &enginev1.Identity{Name: key, Namespace: "default", Uid: "uid-" + key},
	}
}

// start starts a pod.
func start(t *testing.T, c *testremote.Client, key string) testremote.Pod {
	t.Helper()
	pod, err := c.Start(t.Context(), request(key))
	if err != nil {
		t.Fatal(err)
	}
	return pod
}
