package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/parents"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/measuretest"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// silent is the error of a VM that never answers.
var silent = failure.New(context.DeadlineExceeded, "no answer")

// count counts the calls of a name.
func count(w *enginetest.World, name string) (n int) {
	for _, call := range w.Calls() {
		if call == name {
			n++
		}
	}
	return n
}

// TestStartTriesAgain checks that a pod gets another VM after a clone does not answer, and that the failure counts
// for the template.
func TestStartTriesAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		err    error
		always bool
		cold   bool
		want   codes.Code
		starts int // of shims
		blamed int // templates
	}{
		{name: "answers", starts: 1},
		{name: "does not answer", err: silent, starts: 2, blamed: 1},
		{name: "never answers", err: silent, always: true, want: codes.DeadlineExceeded, starts: 3, blamed: 2},
		{name: "fails", err: enginetest.ErrInjected, want: codes.Unknown, starts: 1},
		{name: "not a clone", err: silent, cold: true, want: codes.DeadlineExceeded, starts: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := enginetest.New()
			o := w.In(enginetest.Options(t, enginetest.Roots(t)))
			e := enginetest.Open(t, o)
			w.Once("StartSandbox", tc.err)
			if tc.always {
				w.Fail("StartSandbox", tc.err)
			}
			r := podRequest("p")
			r.Cold = tc.cold
			id, err := e.StartPod(t.Context(), r)
			if (err != nil) != (tc.want != codes.OK) || err != nil && grpccode.Of(err) != tc.want {
				t.Errorf("%v", err)
			}
			if blamed := count(w, "Failed"); w.Starts() != tc.starts || blamed != tc.blamed || e.Working() != 0 {
				t.Errorf("%d shims, %d templates blamed, %d pods in the making", w.Starts(), blamed, e.Working())
			}
			if err := e.RemovePod(t.Context(), id); err != nil && id != "" {
				t.Error(err)
			}
			enginetest.NothingLeft(t, o)
			w.Clean(t)
		})
	}
}

// TestForkedStart checks that a fork gets its configuration and disk, and that a failed fork costs only time.
func TestForkedStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		call    string // the failing call
		noFork  bool
		forks   int // attempts
		blamed  int // parents
		forked  bool
		because string
		counted measure.NotForked
	}{
		{name: "good", forks: 1, forked: true},
		{name: "not wanted", noFork: true, because: "the pod asks for no fork", counted: measure.Asked},
		{name: "no parent", call: "Fork", forks: 1, because: "injected", counted: measure.Broken},
		{name: "no place", call: "Place", because: "injected", counted: measure.Broken},
		{name: "no sandbox", call: "CreateSandbox", forks: 1, blamed: 1, because: "an earlier VM of this start failed", counted: measure.Retry},
		{name: "no VM", call: "StartSandbox", forks: 1, blamed: 1, because: "an earlier VM of this start failed", counted: measure.Retry},
		{name: "no port", call: "Publish", forks: 1, blamed: 1, because: "an earlier VM of this start failed", counted: measure.Retry},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := enginetest.New()
			o := w.In(enginetest.Options(t, enginetest.Roots(t)))
			var tally measuretest.Tally
			o.Parents, o.Observer = w.Parents(t), &tally
			e := enginetest.Open(t, o)
			if tc.call != "" {
				w.Once(tc.call, enginetest.ErrInjected)
			}
			r := podRequest("p")
			r.NoFork = tc.noFork
			r.Ports = []network.Port{{HostIP: "127.0.0.1", PodPort: 80, Protocol: "tcp"}}
			id, err := e.StartPod(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			var c sandbox.Config
			if err := json.Unmarshal(w.Shim(e.StateDir(id)).Config(), &c); err != nil || c.ID != id || c.UID != r.Identity.UID {
				t.Errorf("its configuration has id %s, uid %s: %v", c.ID, c.UID, err)
			}
			facts, err := e.Facts(t.Context(), id)
			if err != nil || facts.Forked != tc.forked || facts.ForkNote != tc.because {
				t.Errorf("forked: %v, %q, %v", facts.Forked, facts.ForkNote, err)
			}
			vm := map[bool]measure.VM{true: measure.Fork, false: measure.Clone}[tc.forked]
			if s := tally.Starts(); len(s) != 1 || s[0].Failed || s[0].VM != vm || s[0].NotForked != tc.counted ||
				s[0].Took <= 0 || len(s[0].Phases) < 5 || len(s[0].Phases) >= len(facts.Phases) {
				t.Errorf("reported: %+v", s)
			}
			if own := head(t, filepath.Join(e.Dir(id), "scratch.img")); strings.HasPrefix(own, enginetest.ParentsDisk) != tc.forked {
				t.Errorf("its disk begins with %q", own)
			}
			if forks, blamed := count(w, "Fork"), count(w, "FailedFork"); forks != tc.forks || blamed != tc.blamed || count(w, "Failed") > 0 {
				t.Errorf("%d forks, %d parents blamed, templates blamed: %d", forks, blamed, count(w, "Failed"))
			}
			if wanted := count(w, "Want"); wanted != 1 && !tc.noFork || wanted != 0 && tc.noFork {
				t.Errorf("a parent is wanted %d times", wanted)
			}
			if err := errors.Join(e.RemovePod(t.Context(), id), e.Close(context.Background())); err != nil {
				t.Error(err)
			}
			enginetest.NothingLeft(t, o)
			w.Clean(t)
		})
	}
}

// keyed records the keys of calls.
type keyed struct {
	kinds.Parents
	keys map[string]parents.Key // by call
}

func (k keyed) Fork(ctx context.Context, key parents.Key, c parents.Child) (hypervisor.Record, error) {
	k.keys["fork"] = key
	return k.Parents.Fork(ctx, key, c)
}

func (k keyed) Want(key parents.Key) { k.keys["want"] = key }

func (k keyed) Failed(key parents.Key, _ time.Time) { k.keys["failed"] = key }

func (k keyed) Ready(_ context.Context, key parents.Key) error { k.keys["ready"] = key; return nil }

// TestTenant checks that each call for a parent uses the pod's tenant.
func TestTenant(t *testing.T) {
	t.Parallel()
	for tenant, of := range map[string]func(engine.Identity) string{
		"":        nil,
		"default": func(who engine.Identity) string { return who.Namespace },
	} {
		w := enginetest.New()
		o := w.In(enginetest.Options(t, enginetest.Roots(t)))
		asked := keyed{w.Parents(t), map[string]parents.Key{}}
		o.Parents, o.Tenant = asked, of
		e := enginetest.Open(t, o)
		w.Once("StartSandbox", enginetest.ErrInjected)
		if _, err := e.StartPod(t.Context(), podRequest("p")); err != nil {
			t.Fatal(err)
		}
		if err := e.Kinds().Warm(t.Context(), kinds.Request{Tenant: tenant}); err != nil {
			t.Error(err)
		}
		for _, what := range []string{"fork", "failed", "want", "ready"} {
			if key := asked.keys[what]; key.Tenant != tenant || key != asked.keys["fork"] {
				t.Errorf("%s: %+v, not of tenant %q", what, key, tenant)
			}
		}
	}
}

// TestPodAtFault checks that a parent is not blamed if no VM can start the pod.
func TestPodAtFault(t *testing.T) {
	t.Parallel()
	w := enginetest.New()
	o := w.In(enginetest.Options(t, enginetest.Roots(t)))
	var tally measuretest.Tally
	o.Parents, o.Observer = w.Parents(t), &tally
	e := enginetest.Open(t, o)
	w.Fail("StartSandbox", enginetest.ErrInjected)
	cold := podRequest("cold")
	cold.Cold = true
	if _, err := e.StartPod(t.Context(), cold); err == nil {
		t.Error("it starts")
	}
	if s := tally.Starts(); len(s) != 1 || !s[0].Failed || s[0].VM != measure.Boot || s[0].NotForked != "" {
		t.Errorf("reported: %+v", s)
	}
	if _, err := e.StartPod(t.Context(), podRequest("p")); err == nil {
		t.Error("it starts")
	}
	forks, parents, templates := count(w, "Fork"), count(w, "FailedFork"), count(w, "Failed")
	if forks != 1 || parents != 0 || templates != 0 {
		t.Errorf("%d forks; %d parents and %d templates blamed", forks, parents, templates)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, o)
	w.Clean(t)
}

// TestStartFails checks that a failed start returns an error and leaves nothing.
func TestStartFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		at   string // the failing call
		do   func(w *enginetest.World, dir string) error
		logs string
		want codes.Code
		says string
	}{
		{name: "logs elsewhere", logs: "/nowhere/logs", want: codes.InvalidArgument, says: "log directory"},
		{
			name: "no template", at: "Attach", want: codes.Unknown, says: "start the shim: injected",
			do: func(w *enginetest.World, _ string) error { w.Once("Template", enginetest.ErrInjected); return nil },
		},
		{
			name: "no record of the shim", at: "Template", want: codes.Unknown, says: "start the shim",
			do: func(_ *enginetest.World, dir string) error {
				path := filepath.Join(dir, "pod.json")
				return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "full"), 0o700))
			},
		},
		{
			name: "no disk", at: "Start", want: codes.Unknown, says: "scratch disk",
			do: func(_ *enginetest.World, dir string) error { return os.Mkdir(filepath.Join(dir, "scratch.img"), 0o700) },
		},
		{
			name: "the shim does not take the disk", at: "Start", want: codes.Unknown, says: "scratch disk: injected",
			do: func(w *enginetest.World, _ string) error { w.Once("SendFile", enginetest.ErrInjected); return nil },
		},
		{
			name: "the shim does not take the port", at: "StartSandbox", want: codes.Unknown, says: "publish port",
			do: func(w *enginetest.World, _ string) error { w.Once("SendFile", enginetest.ErrInjected); return nil },
		},
		{
			name: "no record of its start", at: "Publish", want: codes.Unknown, says: "store",
			do: func(_ *enginetest.World, dir string) error {
				path := filepath.Join(dir, "pod.json")
				return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "full"), 0o700))
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDisks(t)
			r := podRequest("p")
			r.LogDirectory = tc.logs
			r.Ports = []network.Port{{HostIP: "127.0.0.1", PodPort: 80, Protocol: "tcp"}}
			release := func() {}
			if tc.at != "" {
				release = d.w.Block(tc.at)
			}
			started := make(chan error, 1)
			go func() {
				_, err := d.e.StartPod(context.WithoutCancel(t.Context()), r)
				started <- err
			}()
			if tc.at != "" {
				d.called(tc.at)
				dirs, err := filepath.Glob(filepath.Join(d.o.Roots.Sandboxes(), "*"))
				if err != nil || len(dirs) != 1 {
					t.Fatalf("%q, %v", dirs, err)
				}
				if err := tc.do(d.w, dirs[0]); err != nil {
					t.Fatal(err)
				}
			}
			release()
			if err := <-started; grpccode.Of(err) != tc.want || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v", err)
			}
			if pods := d.e.Pods(); len(pods) > 0 || d.e.Working() != 0 {
				t.Errorf("%d pods, %d in the making", len(pods), d.e.Working())
			}
			enginetest.NothingLeft(t, d.o)
			d.w.Clean(t)
		})
	}
}

// TestAfterTheEnd checks that a closed engine starts nothing, and can be closed again.
func TestAfterTheEnd(t *testing.T) {
	t.Parallel()
	w := enginetest.New()
	e := enginetest.Open(t, w.In(enginetest.Options(t, enginetest.Roots(t))))
	id, err := e.StartPod(t.Context(), podRequest("p"))
	if err == nil {
		err = e.RemovePod(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Once("Release", enginetest.ErrInjected)
	if err := e.Close(t.Context()); !errors.Is(err, enginetest.ErrInjected) {
		t.Errorf("a network stays: %v", err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e.StartPod(t.Context(), podRequest("p")); grpccode.Of(err) != codes.Unavailable {
		t.Errorf("a start: %v", err)
	}
	if sub, err := e.Subscribe(1); grpccode.Of(err) != codes.Unavailable || sub != nil {
		t.Errorf("a subscription: %v", err)
	}
}

// head returns the beginning of a file.
func head(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 64)
	n, err := f.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}
