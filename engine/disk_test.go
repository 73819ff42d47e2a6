package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// attempt returns the request for a pod's VM with that number.
func attempt(n string) engine.PodRequest {
	r := podRequest("p")
	r.Key += "/" + n
	return r
}

// disks marks and checks the disks of pods.
type disks struct {
	t *testing.T
	e *engine.Engine
	o engine.Options
	w *enginetest.World
}

func newDisks(t *testing.T) *disks {
	w := enginetest.New()
	o := w.In(enginetest.Options(t, enginetest.Roots(t)))
	enginetest.LoadImage(t, o.Images)
	return &disks{t: t, e: enginetest.Open(t, o), o: o, w: w}
}

func (d *disks) path(id string) string {
	return filepath.Join(d.o.Roots.Sandboxes(), id, "scratch.img")
}

func (d *disks) start(r engine.PodRequest) string {
	d.t.Helper()
	id, err := d.e.StartPod(d.t.Context(), r)
	if err != nil {
		d.t.Fatal(err)
	}
	return id
}

// mounting creates a container with an emptyDir on that medium.
func (d *disks) mounting(pod string, on containerv1.Medium) {
	d.t.Helper()
	r := containerRequest(d.t, d.e)
	r.Mounts = append(r.Mounts, emptyDir(on))
	if id, err := d.e.CreateContainer(d.t.Context(), pod, r); err != nil || id == "" {
		d.t.Fatalf("%q, %v", id, err)
	}
}

func emptyDir(on containerv1.Medium) containerv1.Mount {
	return containerv1.Mount{Destination: "/e", Source: containerv1.Dir{Name: "e", Medium: on}}
}

// called waits for a call that was not yet cleared.
func (d *disks) called(name string) {
	until(d.t, name, func() bool { return slices.Contains(d.w.Calls(), name) })
}

// stopped starts a pod with an emptyDir, writes to its disk and stops it.
func (d *disks) stopped(r engine.PodRequest) string {
	d.t.Helper()
	id := d.start(r)
	d.mounting(id, containerv1.Disk)
	return d.written(id)
}

// written writes to a pod's disk and stops the pod.
func (d *disks) written(id string) string {
	d.t.Helper()
	f, err := os.OpenFile(d.path(id), os.O_WRONLY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("kept"), 0)
	if err := errors.Join(err, f.Close(), d.e.StopPod(d.t.Context(), id)); err != nil {
		d.t.Fatal(err)
	}
	return id
}

// kept reports whether the pod's disk was written by stopped.
func (d *disks) kept(id string) bool {
	f, err := os.Open(d.path(id))
	if err != nil {
		return false
	}
	defer f.Close()
	text := make([]byte, 4)
	_, err = f.ReadAt(text, 0)
	return err == nil && string(text) == "kept"
}

// TestDiskStaysWithItsPod checks that a pod takes over the disk of the stopped pod with its UID, and no other disk.
func TestDiskStaysWithItsPod(t *testing.T) {
	for _, tc := range []struct {
		name string
		next func(d *disks, first string) engine.PodRequest
		want bool
	}{
		{"its next VM", func(*disks, string) engine.PodRequest { return attempt("1") }, true},
		{"under another engine", func(d *disks, _ string) engine.PodRequest {
			if err := d.e.Close(context.Background()); err != nil {
				d.t.Fatal(err)
			}
			d.e = enginetest.Open(d.t, d.o)
			return attempt("1")
		}, true},
		{"after one that failed", func(d *disks, first string) engine.PodRequest {
			d.w.Once("StartSandbox", enginetest.ErrInjected)
			if id, err := d.e.StartPod(d.t.Context(), attempt("1")); err == nil || !d.kept(first) {
				d.t.Errorf("pod %s: %v, disk given back: %v", id, err, d.kept(first))
			}
			return attempt("2")
		}, true},
		{"after one that had no container", func(d *disks, _ string) engine.PodRequest {
			if err := d.e.StopPod(d.t.Context(), d.start(attempt("1"))); err != nil {
				d.t.Fatal(err)
			}
			return attempt("2")
		}, true},
		{"another UID", func(*disks, string) engine.PodRequest { return podRequest("other") }, false},
		{"no UID", func(*disks, string) engine.PodRequest {
			r := attempt("1")
			r.Identity.UID = ""
			return r
		}, false},
		{"another door", func(*disks, string) engine.PodRequest {
			r := attempt("1")
			r.Key = engine.DoorKey("d", r.Key)
			return r
		}, false},
		{"another size", func(*disks, string) engine.PodRequest {
			r := attempt("1")
			r.ScratchBytes = 11 << 30
			return r
		}, false},
		{"the first one was removed", func(d *disks, first string) engine.PodRequest {
			if err := d.e.RemovePod(d.t.Context(), first); err != nil {
				d.t.Fatal(err)
			}
			return attempt("1")
		}, false},
		{"another one of the UID runs", func(d *disks, first string) engine.PodRequest {
			d.start(attempt("1"))
			d.stopped(podRequest("p"))
			return attempt("2")
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDisks(t)
			first := d.stopped(attempt("0"))
			id := d.start(tc.next(d, first))
			if got := d.kept(id); got != tc.want {
				t.Errorf("the disk was kept: %v, want %v", got, tc.want)
			}
			if tc.want && d.kept(first) {
				t.Error("two pods have the disk")
			}
			for _, p := range d.e.Pods() {
				if err := d.e.RemovePod(t.Context(), p.ID); err != nil {
					t.Error(err)
				}
			}
			enginetest.NothingLeft(t, d.o)
			d.w.Clean(t)
		})
	}
}

// TestDiskOfARemovedPod checks that the removal of a predecessor during the start does not affect its successor,
// and that a failed one leaves nothing.
func TestDiskOfARemovedPod(t *testing.T) {
	for name, fails := range map[string]error{"up": nil, "failed": enginetest.ErrInjected} {
		t.Run(name, func(t *testing.T) {
			d := newDisks(t)
			first := d.stopped(attempt("0"))
			d.w.Forget()
			d.w.Once("StartSandbox", fails)
			release := d.w.Block("StartSandbox")
			var id string
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				id, err = d.e.StartPod(context.WithoutCancel(t.Context()), attempt("1"))
			}()
			d.called("StartSandbox")
			if err := d.e.RemovePod(t.Context(), first); err != nil {
				t.Error(err)
			}
			release()
			<-done
			if !errors.Is(err, fails) || fails == nil && !d.kept(id) {
				t.Errorf("started: %v, disk kept: %v", err, d.kept(id))
			}
			if err == nil {
				err = d.e.RemovePod(t.Context(), id)
			}
			enginetest.NothingLeft(t, d.o)
		})
	}
}

// TestDiskWithoutEmptyDirs checks that a pod without emptyDirs stops without a flush, and that its next VM has a
// new disk.
func TestDiskWithoutEmptyDirs(t *testing.T) {
	for name, tc := range map[string]struct {
		mount func(d *disks, pod string)
		want  bool
	}{
		"none":      {func(*disks, string) {}, false},
		"in memory": {func(d *disks, pod string) { d.mounting(pod, containerv1.Memory) }, false},
		"on disk":   {func(d *disks, pod string) { d.mounting(pod, containerv1.Disk) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisks(t)
			id := d.start(attempt("0"))
			tc.mount(d, id)
			d.written(id)
			if got := slices.Contains(d.w.Calls(), "StopSandbox"); got != tc.want {
				t.Errorf("the guest was asked to write its caches: %v, want %v", got, tc.want)
			}
			if got := d.kept(d.start(attempt("1"))); got != tc.want {
				t.Errorf("the disk was kept: %v, want %v", got, tc.want)
			}
		})
	}
}
