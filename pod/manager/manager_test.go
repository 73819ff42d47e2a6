package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// TestLife runs a pod to its end, starts it again and removes it.
func TestLife(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web", "exit", "3")})
		ended(t.Context(), t, p)
		if s := p.Status(); s.Phase != corev1.PodFailed || s.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
			t.Errorf("it ended as %+v", s)
		}
		if p.Err() != nil || m.Running() || w.held != 0 || len(w.holds()) > 0 {
			t.Errorf("error %v, running %v, held %d, its door has %v", p.Err(), m.Running(), w.held, w.holds())
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ended(t.Context(), t, p)
		if err := p.Remove(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if !p.Removed() || len(m.All()) != 0 || w.runtime.left() != 0 {
			t.Errorf("removed %v, %d pods, %d of the runtime's", p.Removed(), len(m.All()), w.runtime.left())
		}
		if _, err := os.Stat(p.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its directory: %v", err)
		}
		if err := p.Remove(t.Context(), false); err != nil {
			t.Errorf("removed again: %v", err)
		}
		if err := p.Start(t.Context()); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("started after its removal: %v", err)
		}
	})
}

// TestRunning stops a running pod, which can be neither started nor removed before.
func TestRunning(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web")})
		if !m.Running() || w.held != 1 || len(w.holds()) != 1 || p.HasEnded() || p.Ending() {
			t.Errorf("running %v, held %d, ended %v, ending %v", m.Running(), w.held, p.HasEnded(), p.Ending())
		}
		if err := p.Start(t.Context()); !errors.Is(err, errdefs.ErrConflict) {
			t.Errorf("started: %v", err)
		}
		if err := p.Remove(t.Context(), false); !errors.Is(err, ErrRuns) {
			t.Errorf("removed: %v", err)
		}
		if id, found := p.Container("c"); !found || id == "" || p.Sandbox() == "" {
			t.Errorf("container %q of sandbox %q", id, p.Sandbox())
		}
		if err := p.Stop(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if end := p.Status().ContainerStatuses[0].State.Terminated; !p.Ending() || end == nil || end.ExitCode != 143 {
			t.Errorf("ending %v, %+v", p.Ending(), end)
		}
		if err := p.Stop(t.Context(), noGrace()); err != nil {
			t.Errorf("stopped again: %v", err)
		}
		if err := p.Start(t.Context()); err != nil || p.Ending() {
			t.Errorf("started again: %v, ending %v", err, p.Ending())
		}
		synctest.Wait()
		if err := p.Remove(t.Context(), true); err != nil || w.runtime.left() != 0 {
			t.Errorf("removed by force: %v, %d left", err, w.runtime.left())
		}
	})
}

// TestStartedAgain: a restarted pod has a new sandbox that follows the last run's, by which the runtime keeps the
// emptyDirs.
func TestStartedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web")})
		for i := range 3 {
			if err := p.Stop(t.Context(), noGrace()); err != nil {
				t.Fatal(err)
			}
			last, began := p.Sandbox(), p.Status().StartTime
			time.Sleep(time.Minute)
			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if i == 1 { // the next manager knows the last run's sandbox
				m.Close()
				m = w.open()
				p = w.find(m, "web")
			}
			synctest.Wait()
			s := p.Status()
			if s.Phase != corev1.PodRunning || s.ContainerStatuses[0].RestartCount != 0 || !s.StartTime.After(began.Time) {
				t.Errorf("%+v", s)
			}
			if attempt := w.runtime.sandboxes[p.Sandbox()].Metadata.Attempt; attempt != uint32(i)+1 {
				t.Errorf("sandbox %s after %s is attempt %d", p.Sandbox(), last, attempt)
			}
			time.Sleep(time.Minute) // the last run's sandbox is removed
			synctest.Wait()
			if n := w.runtime.left(); n != 2 {
				t.Errorf("%d sandboxes and containers", n)
			}
		}
	})
}

// TestTakenOver: pods outlive a manager unchanged.
func TestTakenOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first := w.open()
		w.run(first, Record{Pod: spec("runs"), Network: "none"})
		w.run(first, Record{Pod: spec("ended", "exit", "0")})
		first.Close()
		if w.held != 0 || w.runtime.running() != 1 {
			t.Errorf("closed: held %d, %d run", w.held, w.runtime.running())
		}
		sandboxes := w.runtime.left()

		m := w.open()
		runs, over := w.find(m, "runs"), w.find(m, "ended")
		if s := runs.Status(); s.Phase != corev1.PodRunning || runs.rec.Network != "none" {
			t.Errorf("the running pod: %+v", s)
		}
		if s := over.Status(); !over.HasEnded() || s.Phase != corev1.PodSucceeded {
			t.Errorf("the ended pod: %+v", s)
		}
		if w.runtime.left() != sandboxes {
			t.Error("the next manager created an object")
		}
		if p, err := m.Get(runs.UID()); err != nil || p != runs {
			t.Errorf("by its UID: %v", err)
		}
		if _, err := m.Get("none"); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("by no UID: %v", err)
		}
	})
}

// TestOrphans: the next manager ends pods of lost clients and pods that were being stopped. WaitDetached waits only for
// these.
func TestOrphans(t *testing.T) {
	for _, tc := range []struct {
		name    string
		rec     Record
		there   bool // after its end
		running bool
	}{
		{name: "a client's", rec: Record{Foreground: true}, there: true},
		{name: "a client's, to be removed", rec: Record{Foreground: true, Remove: true}},
		{name: "being stopped", rec: Record{Stopping: true}, there: true},
		{name: "being stopped, to be removed", rec: Record{Stopping: true, Remove: true}},
		{name: "one of its own", rec: Record{}, there: true, running: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				first := w.open()
				tc.rec.Pod = spec("web")
				w.run(first, tc.rec)
				first.Close()
				m := w.open()
				if err := m.WaitDetached(t.Context()); err != nil {
					t.Error(err)
				}
				if there := len(m.All()) == 1; there != tc.there {
					t.Errorf("there: %v", there)
				}
				if running := w.runtime.running() == 1; running != tc.running {
					t.Errorf("running: %v", running)
				}
				if !tc.there && w.runtime.left() != 0 {
					t.Errorf("%d left of it", w.runtime.left())
				}
			})
		})
	}
}

// TestWaitDetached: WaitDetached waits only for detached ends, and not for ever.
func TestWaitDetached(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		gone := false
		end := m.TrackDetached(func() bool { return gone })
		if err := m.WaitDetached(t.Context()); err != nil {
			t.Errorf("its client is there: %v", err)
		}
		gone = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.WaitDetached(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its client is gone: %v", err)
		}
		end()
		if err := m.WaitDetached(t.Context()); err != nil {
			t.Errorf("it has ended: %v", err)
		}
	})
}

// TestDamaged: a pod with an unreadable record, or one that can no longer run, is listed with its VM and can be
// removed. It is not run.
func TestDamaged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(w *world, file string) error
		key    string
	}{
		{"cut off", func(_ *world, file string) error { return os.Truncate(file, 20) }, "default/web"},
		{"empty", func(_ *world, file string) error { return os.Truncate(file, 0) }, "default/web"},
		{"of no pod", func(_ *world, file string) error {
			return atomicfile.WriteJSON(file, Record{}, 0o600, atomicfile.Volatile)
		}, "default/web"},
		{"of another pod", func(_ *world, file string) error {
			return atomicfile.WriteJSON(file, Record{Pod: spec("other")}, 0o600, atomicfile.Volatile)
		}, "default/web"},
		{"refused", func(_ *world, file string) error {
			bad := spec("web")
			bad.Annotations = map[string]string{"io.bulkhead.internal/network": "x"}
			return atomicfile.WriteJSON(file, Record{Pod: bad}, 0o600, atomicfile.Volatile)
		}, "default/web"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				first := w.open()
				p := w.run(first, Record{Pod: spec("web")})
				first.Close()
				if err := tc.damage(w, filepath.Join(p.Dir(), recordFile)); err != nil {
					t.Fatal(err)
				}
				m := w.open()
				if len(m.All()) != 1 || m.Running() {
					t.Fatalf("%d pods, running %v", len(m.All()), m.Running())
				}
				p = m.All()[0]
				if p.Key() != tc.key || p.Status().Phase != corev1.PodFailed || p.Status().Message == "" {
					t.Errorf("%s: %+v", p.Key(), p.Status())
				}
				if err := p.Damaged(); !errors.Is(err, errdefs.ErrConflict) || !strings.Contains(err.Error(), "record is damaged") {
					t.Errorf("damaged: %v", err)
				}
				if err := p.Start(t.Context()); !errors.Is(err, errdefs.ErrConflict) {
					t.Errorf("started: %v", err)
				}
				if err := p.Remove(t.Context(), false); err != nil || w.runtime.left() != 0 {
					t.Errorf("removed: %v, %d left", err, w.runtime.left())
				}
			})
		})
	}
}

// TestNeverWas: a directory without a record remains after a crash during Add.
func TestNeverWas(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		dir := filepath.Join(w.dir, "pods", "u")
		if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
			t.Fatal(err)
		}
		if n := len(w.open().All()); n != 0 {
			t.Errorf("%d pods", n)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory remains: %v", err)
		}
	})
}

// TestStopAndRemoveAll ends and removes the pods of a lost client.
func TestStopAndRemoveAll(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		a, b := w.run(m, Record{Pod: spec("a"), Foreground: true}), w.run(m, Record{Pod: spec("b", "exit", "1"), Foreground: true})
		if err := m.StopAndRemoveAll([]*Pod{a, b}); err != nil {
			t.Error(err)
		}
		if len(m.All()) != 0 || w.runtime.left() != 0 {
			t.Errorf("%d pods, %d of the runtime's", len(m.All()), w.runtime.left())
		}
	})
}

// TestRemovesItself: a detached run with removal removes its pod at the end, and the last such pods are remembered.
func TestRemovesItself(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		first := w.run(m, Record{Pod: spec("web", "exit", "4"), Remove: true})
		if len(m.All()) != 0 || w.runtime.left() != 0 {
			t.Errorf("%d pods, %d of the runtime's", len(m.All()), w.runtime.left())
		}
		p, ok := m.Removed(first.UID())
		if !ok || p.Status().ContainerStatuses[0].State.Terminated.ExitCode != 4 {
			t.Errorf("remembered: %v, %+v", ok, p)
		}
		var last *Pod
		for i := range mostRemoved {
			last = w.run(m, Record{Pod: spec(fmt.Sprint("web-", i), "exit", "0"), Remove: true})
		}
		_, old := m.Removed(first.UID())
		if _, ok := m.Removed(last.UID()); old || !ok {
			t.Errorf("after %d others, the first is remembered: %v, the last: %v", mostRemoved, old, ok)
		}
	})
}

// TestUndeletable: a pod with a sandbox that cannot be removed stays, and can be removed later.
func TestUndeletable(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web", "exit", "0")})
		broken := errors.New("no removal today")
		w.runtime.fail("RemovePodSandbox", broken)
		if err := p.Remove(t.Context(), false); !errors.Is(err, broken) || len(m.All()) != 1 {
			t.Errorf("removed: %v, %d pods", err, len(m.All()))
		}
		w.runtime.fail("StopPodSandbox", broken)
		if err := p.Start(t.Context()); !errors.Is(err, broken) || !p.HasEnded() {
			t.Errorf("started: %v", err)
		}
		w.runtime.fail("StopPodSandbox", nil)
		w.runtime.fail("RemovePodSandbox", nil)
		if err := p.Remove(t.Context(), false); err != nil {
			t.Errorf("removed later: %v", err)
		}
	})
}

// TestStartFails: a pod that cannot be started again is unchanged.
func TestStartFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web", "exit", "4")})
		w.refuse = errors.New("no door today")
		if err := p.Start(t.Context()); !errors.Is(err, w.refuse) {
			t.Errorf("started: %v", err)
		}
		if end := p.Status().ContainerStatuses[0].State.Terminated; !p.HasEnded() || end.ExitCode != 4 {
			t.Errorf("ended %v, %+v", p.HasEnded(), end)
		}
		done, _, err := p.claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Remove(ctx, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("removed while it is started: %v", err)
		}
	})
}

// TestGivenUp: the error of a failed start is returned by Err.
func TestGivenUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		broken := errors.New("no sandbox today")
		w.runtime.fail("RunPodSandbox", broken)
		p := w.run(m, Record{Pod: spec("web")})
		ended(t.Context(), t, p)
		if !errors.Is(p.Err(), broken) {
			t.Errorf("ended with %v", p.Err())
		}
		patient, err := m.Add(Record{Pod: spec("patient")}, Objects{})
		if err != nil {
			t.Fatal(err)
		}
		patient.KeepTrying()
		patient.Run()
		synctest.Wait()
		w.runtime.fail("RunPodSandbox", nil)
		time.Sleep(time.Hour)
		if patient.Status().Phase != corev1.PodRunning {
			t.Errorf("the patient one: %+v", patient.Status())
		}
	})
}

func TestEndTimeout(t *testing.T) {
	t.Parallel()
	long, short := int64(300), int64(1)
	p := spec("web")
	if got := EndTimeout(p, nil); got != 65*time.Second {
		t.Errorf("its own: %v", got)
	}
	if a, b := EndTimeout(p, &long), EndTimeout(p, &short); a != 6*time.Minute || b != 65*time.Second {
		t.Errorf("asked for: %v and %v", a, b)
	}
	p.Spec.TerminationGracePeriodSeconds = nil
	if got := EndTimeout(p, nil); got != 90*time.Second {
		t.Errorf("the default: %v", got)
	}
}
