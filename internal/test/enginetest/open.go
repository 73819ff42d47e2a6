package enginetest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testtemplate"
	"github.com/bulkhead-project/bulkhead/network"
)

// Busybox is the name of the image that LoadImage loads.
const Busybox = "localhost/busybox:test"

// The kinds of VMs for Real.
const (
	Clones = false
	Forks  = true // forks, once there is a parent
)

// Roots returns roots with a short state path. They are removed with the test.
func Roots(t testing.TB) dirs.Roots {
	t.Helper()
	root, err := os.MkdirTemp("", "bk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	r := dirs.Roots{Data: filepath.Join(root, "d"), State: filepath.Join(root, "s")}
	t.Cleanup(func() { endGroups(t, r) })
	return r
}

// endGroups removes the cgroups of pods that a test has left running.
func endGroups(t testing.TB, r dirs.Roots) {
	t.Helper()
	instances, err := os.ReadDir(r.State)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, i := range instances {
		if !i.IsDir() {
			continue // the result of the KVM probe
		}
		groups := group.Find(r, i.Name(), slog.New(slog.DiscardHandler))
		if err := groups.Reap(context.Background(), func(string) bool { return false }); err != nil {
			t.Errorf("remove the cgroups of instance %s: %v", i.Name(), err)
		}
	}
}

// Options returns options for an engine of instance "test" without a network. The caller must add a World, or shims
// and VMs.
func Options(t testing.TB, roots dirs.Roots) engine.Options {
	t.Helper()
	if err := roots.Ensure(); err != nil {
		t.Fatal(err)
	}
	images, err := image.Open(roots, "test")
	if err != nil {
		t.Fatal(err)
	}
	return engine.Options{
		Roots: roots, Instance: "test", Images: images, Users: filepath.Join(roots.Data, "users"),
		Network:   func(network.Kind) (network.Provider, error) { return network.None{}, nil },
		HostPaths: []string{os.TempDir()}, DefaultMemory: 512,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// In makes an engine run in w.
func (w *World) In(o engine.Options) engine.Options {
	o.Shims, o.VMs, o.Network = w, w.VMs(), w.Network
	o.Shim, o.Guest = "/no/shim", guest.Bundle{Dir: "/no/guest"}
	return o
}

// Real returns options for an engine with real VMs, Clones or Forks, the test image, and the programs in bin/. They
// serve for several engines. It skips the test with -short.
func Real(t testing.TB, forks bool) engine.Options {
	t.Helper()
	if testing.Short() {
		t.Skip("boots VMs: not with -short")
	}
	o := Options(t, Roots(t))
	bin := os.Getenv("BULKHEAD_LIBEXEC")
	if bin == "" {
		root, err := testgo.Root()
		if err != nil {
			t.Fatal(err)
		}
		bin = filepath.Join(root, "bin")
	}
	o.NoForks, o.Warm = !forks, filepath.Join(bin, "bulkhead-warm.so")
	o.Share, o.Shim = filepath.Join(bin, "bulkhead-share"), filepath.Join(bin, "bulkhead-shim")
	o.Users = "" // real processes need users that no other engine of the host leases
	dir := os.Getenv("BULKHEAD_GUEST")
	if dir == "" {
		dir = filepath.Join(bin, "guest")
	}
	var err error
	if o.Guest, err = guest.Load(dir); err != nil {
		t.Fatalf("this test needs the programs and the guest bundle (make build guest): %v", err)
	}
	LoadImage(t, o.Images)
	testtemplate.Share(t, filepath.Dir(o.Roots.Data), o.Roots)
	return o
}

// LoadImage loads the test image into a store.
func LoadImage(t testing.TB, images *image.Store) {
	t.Helper()
	_, err := images.Load(t.Context(), "oci:"+testimage.Busybox(t), Busybox, image.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// Open opens an engine and closes it with the test.
func Open(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := engine.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// NothingLeft fails the test if an engine without pods has left files.
func NothingLeft(t testing.TB, o engine.Options) {
	t.Helper()
	state := o.Roots.Instance(o.Instance)
	for _, dir := range []string{
		o.Roots.Sandboxes(), filepath.Join(o.Roots.Data, "names", o.Instance), o.Users, state,
	} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		for _, e := range entries {
			if dir != state || e.Name() != "engine.lock" {
				t.Errorf("left behind: %s", filepath.Join(dir, e.Name()))
			}
		}
	}
	pins, err := o.Images.Pins()
	if err != nil || len(pins) > 0 {
		t.Errorf("pins left behind: %v %v", pins, err)
	}
}
