package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// TestComplete checks the defaults of the options, and the errors for missing installed parts.
func TestComplete(t *testing.T) {
	libexec, bundle := t.TempDir(), t.TempDir()
	t.Setenv("BULKHEAD_LIBEXEC", libexec)
	t.Setenv("BULKHEAD_GUEST", bundle)
	roots := dirs.Roots{Data: filepath.Join(t.TempDir(), "d"), State: filepath.Join(t.TempDir(), "s")}
	if err := roots.Ensure(); err != nil {
		t.Fatal(err)
	}
	options := func() *Options {
		return &Options{Roots: roots, Instance: "test", Users: t.TempDir(), VMs: noVMs{}}
	}
	if err := options().complete(); !errors.Is(err, dirs.ErrNotInstalled) {
		t.Errorf("without a shim: %v", err)
	}
	shim := filepath.Join(libexec, "bulkhead-shim")
	if err := os.WriteFile(shim, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := options().complete(); !errors.Is(err, dirs.ErrNotInstalled) {
		t.Errorf("without a server of directories: %v", err)
	}
	if err := os.WriteFile(filepath.Join(libexec, "bulkhead-share"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := options().complete(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a guest: %v", err)
	}
	raw, err := json.Marshal(guest.Manifest{Format: guest.Format, Files: map[string]guest.File{guest.KernelFile: {}, guest.InitrdFile: {}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{guest.ManifestFile: raw, guest.KernelFile: nil, guest.InitrdFile: nil} {
		if err := os.WriteFile(filepath.Join(bundle, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options()
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	if o.Shim != shim || o.Guest.Dir != bundle || o.Guest.Digest == "" || o.Logger != slog.Default() {
		t.Errorf("%+v", o)
	}
	if o.Shims == nil || o.Images == nil || o.Network == nil || o.Groups == nil {
		t.Errorf("left out: %+v", o)
	}
	t.Setenv("BULKHEAD_GUEST", "")
	if err := options().complete(); !errors.Is(err, dirs.ErrNotInstalled) {
		t.Errorf("with a guest nowhere: %v", err)
	}
}

// TestCloseWaits checks that a second Close also waits for the end.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	release := make(chan struct{})
	var ended atomic.Bool
	e.spawn(func() {
		<-release
		ended.Store(true)
	})
	e.SetClosed(true)
	e.cancel()
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	if err := e.Close(t.Context()); err != nil || !ended.Load() {
		t.Errorf("ended: %v, %v", ended.Load(), err)
	}
	e.SetClosed(false) // for the cleanup
}

// TestAdmitGivesUp checks that a cancelled caller stops waiting for its turn.
func TestAdmitGivesUp(t *testing.T) {
	t.Parallel()
	p := scriptedPod(t, &scripted{}, ContainerRunning).pod
	e := p.e
	ctx, cancel := context.WithCancel(t.Context())
	var last func()
	for range cap(e.turns) {
		done, err := e.admit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		last = done
	}
	cancel()
	if done, err := e.admit(ctx); !errors.Is(err, context.Canceled) || done != nil {
		t.Errorf("one too many: %v", err)
	}
	last()
	if _, err := e.admit(t.Context()); err != nil {
		t.Error(err)
	}
	// A waiting call fails when the engine ends.
	e.cancel()
	if _, err := e.StartPod(t.Context(), PodRequest{Key: "p"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a pod: %v", err)
	}
	r := ContainerRequest{Key: "k", Spec: &specs.Spec{}, Root: containerv1.Image{ID: "i"}, Stdio: containerv1.Discard{}}
	if _, err := e.CreateContainer(t.Context(), p.id, r); !errors.Is(err, context.Canceled) {
		t.Errorf("a container: %v", err)
	}
}
