package manager

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// TestOutput returns a container's output: all runs, the newest, or the one before.
func TestOutput(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		again := spec("web", "exit", "1")
		again.Spec.RestartPolicy = corev1.RestartPolicyAlways
		p := w.run(m, Record{Pod: again})
		for Restarts(p.Status(), "c") < 1 {
			time.Sleep(time.Second)
		}
		if err := p.Stop(t.Context(), noGrace()); err != nil {
			t.Fatal(err)
		}
		read := func(o OutputOptions) (string, error) {
			var text strings.Builder
			err := p.Output(t.Context(), "c", o, func(l logs.Line) error { text.Write(l.Data); return nil })
			return text.String(), err
		}
		for _, tc := range []struct {
			name string
			o    OutputOptions
			want string
		}{
			{"the newest", OutputOptions{Tail: -1}, "c 1\n"},
			{"the one before", OutputOptions{Tail: -1, Previous: true}, "c 0\n"},
			{"none of it", OutputOptions{Tail: 0}, ""},
			{"nothing since", OutputOptions{Tail: -1, Since: time.Now().Add(time.Hour)}, ""},
		} {
			if got, err := read(tc.o); err != nil || got != tc.want {
				t.Errorf("%s: %q, %v", tc.name, got, err)
			}
		}
		if _, err := p.supervised().Container("c"); !err {
			t.Error("it has no container")
		}
		broken := errors.New("the reader is gone")
		if err := p.Output(t.Context(), "c", OutputOptions{Tail: -1}, func(logs.Line) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("to a lost reader: %v", err)
		}
		first := w.run(m, Record{Pod: spec("first")})
		o := OutputOptions{Tail: -1, Previous: true}
		if err := first.Output(t.Context(), "c", o, func(logs.Line) error { return nil }); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("before the first run: %v", err)
		}
	})
}

// TestFollow follows a container's output over all its runs, until the pod has ended or the reader fails. It uses
// the real clock, because the kernel reports changes of files.
func TestFollow(t *testing.T) {
	t.Parallel()
	w := &world{t: t, dir: t.TempDir(), runtime: newFake()}
	m := w.open()
	p, err := m.Add(Record{Pod: spec("web")}, Objects{})
	if err != nil {
		t.Fatal(err)
	}
	p.Run()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	gone, leave := context.WithCancel(ctx)
	all := OutputOptions{Follow: true, Whole: true, Tail: -1}
	if err := p.Output(gone, "c", all, func(logs.Line) error { leave(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that goes: %v", err)
	}
	var text strings.Builder
	stopped := make(chan error, 1)
	err = p.Output(ctx, "c", all, func(l logs.Line) error {
		text.Write(l.Data)
		go func() { stopped <- p.Stop(ctx, nil) }()
		return nil
	})
	if err != nil || text.String() != "c 0\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if watched := m.logs.Watched(); len(watched) != 0 {
		t.Errorf("still watched: %v", watched)
	}
}

// TestFollowOneRun: OneRun ends the following with the run, even if the pod continues. The previous run of a container
// that waits for a restart is its last one.
func TestFollowOneRun(t *testing.T) {
	t.Parallel()
	w := &world{t: t, dir: t.TempDir(), runtime: newFake()}
	m := w.open()
	crashes := spec("web", "exit", "1")
	crashes.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p, err := m.Add(Record{Pod: crashes}, Objects{})
	if err != nil {
		t.Fatal(err)
	}
	p.Run()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		status, changed := p.Watch()
		if c := podstatus.Named(&status, "c"); c.RestartCount == 1 && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	for name, o := range map[string]OutputOptions{
		"followed": {Follow: true, OneRun: true, Tail: -1}, "as it is": {Tail: -1}, "previous": {Previous: true, Tail: -1},
	} {
		var text strings.Builder
		err := p.Output(ctx, "c", o, func(l logs.Line) error { text.Write(l.Data); return nil })
		if err != nil || text.String() != "c 1\n" || p.HasEnded() {
			t.Errorf("%s: %q, %v", name, text.String(), err)
		}
	}
	if err := p.Stop(ctx, noGrace()); err != nil {
		t.Error(err)
	}
}

// TestVerdictsAreKept: results of probes are saved for the next manager.
func TestVerdictsAreKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		probed := spec("web")
		probed.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, InitialDelaySeconds: 3600, PeriodSeconds: 1,
		}
		m := w.open()
		p := w.run(m, Record{Pod: probed})
		id, _ := p.Container("c")
		if v, found := notesOf(p).lastVerdicts(probed)[id]; !found || !v.Started || v.Ready {
			t.Errorf("in %s: %+v, %v", filepath.Join(p.Dir(), verdictsFile), v, found)
		}
		if err := p.Stop(t.Context(), noGrace()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}
