package cri

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// doorOptions returns the options of a door over an engine with o.
func doorOptions(o engine.Options) Options {
	return Options{
		Roots: o.Roots, Socket: filepath.Join(o.Roots.State, "cri.sock"), Logs: o.HostPaths, Engine: o, Logger: o.Logger,
	}
}

// fakeOptions returns the options of a door over an engine in w that has the test image.
func fakeOptions(t testing.TB, w *enginetest.World) Options {
	t.Helper()
	o := enginetest.Options(t, enginetest.Roots(t))
	enginetest.LoadImage(t, o.Images)
	return doorOptions(w.In(o))
}

// serveDoor runs a door until the end of the test.
func serveDoor(t testing.TB, o Options) critest.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- Run(ctx, o, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the door returned %v", err)
			}
		case <-time.After(testdeadline.For(time.Minute)):
			t.Error("the door does not stop")
		}
	})
	return critest.Dial(t, o.Socket)
}
