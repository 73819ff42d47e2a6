package vms

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/pace"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisorfake"
	"github.com/bulkhead-project/bulkhead/internal/test/measuretest"
)

// fakeTemplates returns templates of VMs without a guest.
func fakeTemplates(t *testing.T, log *strings.Builder) (*Templates, hypervisor.VMConfig) {
	t.Helper()
	state, err := os.MkdirTemp("", "m") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	kernel := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(kernel, []byte("kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &hypervisorfake.Driver{}
	none := func(context.Context, hypervisor.VM) error { return nil }
	h := &Templates{
		driver: d, store: template.Open(dirs.Roots{Data: t.TempDir(), State: state}, d), guest: template.Guest{Ready: none, Answer: none},
		log: slog.New(slog.NewTextHandler(log, nil)), open: map[hypervisor.VMConfig]*heldTemplate{}, observer: &measuretest.Tally{},
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, hypervisor.VMConfig{Kernel: kernel, Accel: hypervisor.TCG, VCPUs: 1, Memory: 128, Network: hypervisor.NetworkNone}
}

// TestCondemned checks that two failed clones in a row condemn their template, and that the next one is built. A
// successful clone in between resets the count.
func TestCondemned(t *testing.T) {
	var log strings.Builder
	h, m := fakeTemplates(t, &log)
	silent := errors.New("silent")
	get := func() *Template {
		t.Helper()
		got, err := h.Template(t.Context(), m, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	built := func() time.Time {
		t.Helper()
		list, err := h.List(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("%d templates, %v", len(list), err)
		}
		return list[0].Built
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	key, first := get().Key, built()
	h.Failed(ctx, m, key, silent)
	h.Answered(m, time.Millisecond)
	h.Failed(ctx, m, key, silent)
	h.Failed(ctx, m, "another's", silent)
	if get(); !built().Equal(first) {
		t.Fatal("built again without need")
	}
	h.Failed(ctx, m, key, silent)
	if left, err := h.List(ctx); err != nil || len(left) != 0 {
		t.Errorf("a condemned template is listed: %v, %v", left, err)
	}
	if said := log.String(); !strings.Contains(said, "template condemned") || !strings.Contains(said, "condemned=1 error=silent") {
		t.Errorf("the log says %s", said)
	}
	if get(); built().Equal(first) {
		t.Error("not built again")
	}
	list, err := h.List(ctx)
	if err != nil || list[0].Condemned != 1 || !strings.Contains(list[0].Reason, "2 clones in a row failed: silent") {
		t.Errorf("it says %+v, %v", list, err)
	}
}

// TestCondemnedInVain checks that a failure to condemn a template is logged as such.
func TestCondemnedInVain(t *testing.T) {
	var log strings.Builder
	h, m := fakeTemplates(t, &log)
	got, err := h.Template(t.Context(), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range mostFailures {
		h.Failed(t.Context(), m, got.Key, errors.New("silent")) // without a deadline the store does not wait
	}
	if said := log.String(); !strings.Contains(said, "condemn a template") || strings.Contains(said, "template condemned") {
		t.Errorf("the log says %s", said)
	}
}

// TestMemoryIsGivenBack checks that the memory of a removed template is released with its last user, and that
// another template stays.
func TestMemoryIsGivenBack(t *testing.T) {
	for name, remove := range map[string]func(context.Context, *Templates, hypervisor.VMConfig, string) error{
		"condemned": func(ctx context.Context, h *Templates, m hypervisor.VMConfig, key string) error {
			for range mostFailures {
				h.Failed(ctx, m, key, errors.New("silent"))
			}
			return nil
		},
		"removed": func(ctx context.Context, h *Templates, _ hypervisor.VMConfig, key string) error {
			return h.Remove(ctx, key)
		},
		"removed by another engine": func(ctx context.Context, h *Templates, m hypervisor.VMConfig, key string) error {
			if err := h.store.Remove(ctx, key); err != nil {
				return err
			}
			next, err := h.Template(ctx, m, nil)
			if err == nil {
				next.Release()
			}
			return err
		},
		"closed": func(_ context.Context, h *Templates, _ hypervisor.VMConfig, _ string) error { return h.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			h, m := fakeTemplates(t, &log)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var starts []*Template
			for range 2 {
				start, err := h.Template(ctx, m, nil)
				if err != nil {
					t.Fatal(err)
				}
				starts = append(starts, start)
			}
			held := func() bool {
				_, err := starts[0].Memory.Stat()
				return err == nil
			}
			starts[0].Release()
			starts[0].Release()
			if err := remove(ctx, h, m, starts[0].Key); err != nil {
				t.Fatal(err)
			}
			if !held() {
				t.Error("a start has lost its template")
			}
			starts[1].Release()
			if held() {
				t.Error("the memory is still held")
			}
			if strings.Contains(log.String(), "give a template's memory back") {
				t.Errorf("the log says %s", &log)
			}
			next, err := h.Template(ctx, m, nil)
			if err != nil {
				t.Fatal(err)
			}
			next.Release()
			if _, err := next.Memory.Stat(); err != nil {
				t.Errorf("a template without starts: %v", err)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if _, err := next.Memory.Stat(); err == nil {
				t.Error("the memory of an unused template is still open")
			}
		})
	}
}

// TestRemovedInVain checks that clones still use a template that could not be removed.
func TestRemovedInVain(t *testing.T) {
	var log strings.Builder
	h, m := fakeTemplates(t, &log)
	first, err := h.Template(t.Context(), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(t.Context(), first.Key); err == nil {
		t.Error("removed without a deadline")
	}
	if next, err := h.Template(t.Context(), m, nil); err != nil || next.Memory != first.Memory {
		t.Errorf("%+v, after %+v: %v", next, first, err)
	}
}

// TestBuildingIsReported checks that building is called only for a missing template, before it is built.
func TestBuildingIsReported(t *testing.T) {
	var log strings.Builder
	h, m := fakeTemplates(t, &log)
	told := 0
	for range 2 {
		got, err := h.Template(t.Context(), m, func() { told++ })
		if err != nil {
			t.Fatal(err)
		}
		got.Release()
		if err := h.Close(); err != nil { // like a later engine
			t.Fatal(err)
		}
		if built := strings.Count(log.String(), "template built"); told != 1 || built != 1 {
			t.Errorf("reported %d times, logged %d times", told, built)
		}
	}
	counts := h.observer.(*measuretest.Tally).Counts()
	if diff := cmp.Diff(map[measure.Event]int{measure.TemplateBuilt: 1, measure.TemplateHit: 1}, counts); diff != "" {
		t.Error(diff)
	}
}

// TestOldTemplates checks that a template is old when VMs can no longer be cloned from it.
func TestOldTemplates(t *testing.T) {
	var log strings.Builder
	h, m := fakeTemplates(t, &log)
	built, err := h.Template(t.Context(), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	built.Release()
	old := func(why string, want bool) {
		t.Helper()
		if list, err := h.List(t.Context()); err != nil || len(list) != 1 || list[0].Old != want {
			t.Errorf("%s: %+v, %v", why, list, err)
		}
	}
	old("as built", false)
	if err := os.WriteFile(m.Kernel, []byte("a newer kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	old("of another kernel", true)
	if err := os.Remove(m.Kernel); err != nil {
		t.Fatal(err)
	}
	old("of no kernel", true)
}

// TestPatience checks that patience follows the measured times within bounds, and doubles after a failure.
func TestPatience(t *testing.T) {
	var log strings.Builder
	h, m := fakeTemplates(t, &log)
	patience := func() time.Duration {
		t.Helper()
		got, err := h.Template(t.Context(), m, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Patience
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// The value within the bounds depends on the load of the host, and the bounds on its speed.
	least, most := pace.Stretch(leastPatience), pace.Stretch(mostPatience)
	if quick := patience(); quick < least || quick > most {
		t.Errorf("%v after a proof that took nothing", quick)
	}
	if held := h.open[m]; held.pace.Expect(1) != held.Info.Answered || held.Info.Answered <= 0 {
		t.Errorf("%v are expected after a proof of %v", held.pace.Expect(1), held.Info.Answered)
	}
	h.Failed(ctx, m, h.open[m].Info.Key, errors.New("silent"))
	if again := patience(); again < 2*least || again > 2*most {
		t.Errorf("%v after a failure", again)
	}
	h.Answered(m, time.Hour)
	if slow := patience(); slow != most {
		t.Errorf("%v after a clone that took an hour", slow)
	}
}
