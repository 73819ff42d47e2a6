package engine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/machines"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim"
)

// anyVMs has any template at once, or fails.
type anyVMs struct {
	noVMs
	accel, template error
	saved           []machines.Saved
	list            error
}

func (v anyVMs) Template(context.Context, hypervisor.Machine, func()) (*machines.Template, error) {
	return &machines.Template{Key: "key", Release: func() {}}, v.template
}

func (v anyVMs) Accel(_ context.Context, a hypervisor.Accel) (hypervisor.Accel, string, error) {
	return a, "", v.accel
}

func (v anyVMs) List(context.Context) ([]machines.Saved, error) { return v.saved, v.list }

func (v anyVMs) End(context.Context, string) error { return nil }

// wanted is the kind of machine of these tests.
var wanted = kind{hypervisor.Machine{VCPUs: 2, Memory: 512}, 768}

// poolEngine is an engine whose pool is to hold one member of the kind wanted.
func poolEngine(t *testing.T, s *scripted) *Engine {
	t.Helper()
	e := reapEngine(t, &scriptedShims{shim: s, connect: []error{shim.ErrNotRunning}})
	e.machines = anyVMs{}
	e.pool.size, e.pool.kind = 1, wanted
	return e
}

// fake is a member that is on no disk.
func fake(s *scripted) *member {
	id := store.NewID()
	return &member{record: store.Pod{ID: id, Key: poolKey(id)}, conn: s.conn()}
}

// died ends a member's shim.
func (m *member) died() *member {
	done := make(chan struct{})
	close(done)
	m.conn.Done = done
	return m
}

// TestPoolTake: a pod gets the first member whose shim lives, if it is of the pod's machine
// and of no more memory.
func TestPoolTake(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	for _, tc := range []struct {
		name string
		k    kind
		dead int
		want bool
		left int
	}{
		{name: "its own kind", k: wanted, want: true, left: 1},
		{name: "more memory", k: kind{wanted.machine, 769}, want: true, left: 1},
		{name: "less memory", k: kind{wanted.machine, 767}, left: 2},
		{name: "another machine", k: kind{hypervisor.Machine{VCPUs: 4, Memory: 512}, 768}, left: 2},
		{name: "the first has died", k: wanted, dead: 1, want: true},
		{name: "all have died", k: wanted, dead: 2},
	} {
		e := poolEngine(t, s)
		first, second := fake(s), fake(s)
		e.pool.members = []*member{first, second}
		for _, m := range e.pool.members[:tc.dead] {
			m.died()
		}
		m := e.pool.take(t.Context(), tc.k)
		if (m != nil) != tc.want || m != nil && m != []*member{first, second}[tc.dead] || len(e.pool.members) != tc.left {
			t.Errorf("%s: %v, left %d", tc.name, m, len(e.pool.members))
		}
	}
	// What is being made is worth the wait, for whom it is made.
	e := poolEngine(t, s)
	making, m := make(chan struct{}), fake(s)
	e.pool.making = making
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m := e.pool.take(ctx, wanted); m != nil {
		t.Error("given up and taken")
	}
	if m := e.pool.take(t.Context(), kind{}); m != nil {
		t.Error("of another kind")
	}
	go func() {
		e.pool.mu.Lock()
		defer e.pool.mu.Unlock()
		e.pool.members, e.pool.making = []*member{m}, nil
		close(making)
	}()
	if got := e.pool.take(t.Context(), wanted); got != m {
		t.Errorf("waited for %v", got)
	}
}

// TestPoolWant: members of a kind that is not wanted any more are given up, by a pool that
// has any.
func TestPoolWant(t *testing.T) {
	t.Parallel()
	other := kind{wanted.machine, 1024}
	for _, tc := range []struct {
		name   string
		size   int
		closed bool
		k      kind
		want   kind
		left   int
	}{
		{"the same", 1, false, wanted, wanted, 1},
		{"another", 1, false, other, other, 0},
		{"another, of no pool", -1, false, other, wanted, 1},
		{"another, at the end", 1, true, other, wanted, 1},
	} {
		s := &scripted{}
		e := poolEngine(t, s)
		e.pool.members = []*member{fake(s)}
		e.pool.size, e.pool.closed = tc.size, tc.closed
		e.pool.want(tc.k)
		if e.pool.kind != tc.want || len(e.pool.members) != tc.left {
			t.Errorf("%s: %+v, left %d", tc.name, e.pool.kind, len(e.pool.members))
		}
	}
}

// TestPoolRefill: a pool that is to hold nothing is not filled, and the end of a pod hurries
// a filling that waits.
func TestPoolRefill(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		size    int
		closed  bool
		k       kind
		filling bool
		at      time.Duration
		hurried bool
		fills   bool
	}{
		{name: "nothing yet", size: 1, k: wanted, at: time.Hour, fills: true},
		{name: "of no pool", size: -1, k: wanted, at: time.Hour},
		{name: "at the end", size: 1, closed: true, k: wanted, at: time.Hour},
		{name: "of no kind", size: 1, at: time.Hour},
		{name: "fills already", size: 1, k: wanted, filling: true, at: time.Hour, fills: true},
		{name: "fills already and is hurried", size: 1, k: wanted, filling: true, hurried: true, fills: true},
	} {
		e := poolEngine(t, &scripted{})
		p := &e.pool
		p.size, p.closed, p.kind, p.filling = tc.size, tc.closed, tc.k, tc.filling
		p.refill(tc.at)
		p.mu.Lock()
		if p.filling != tc.fills || (len(p.now) > 0) != tc.hurried {
			t.Errorf("%s: fills %v, hurried %v", tc.name, p.filling, len(p.now) > 0)
		}
		p.mu.Unlock()
	}
}

// TestPoolFills: up to its size, and a machine that fails ends the filling until a pod wants
// another.
func TestPoolFills(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		size  int
		errs  errs
		want  int
		tried int
	}{
		{size: 1, want: 1, tried: 1},
		{size: 3, want: 3, tried: 3},
		{size: 3, errs: errs{"Rehearse": {errInjected}}, tried: 1},
		{size: 3, errs: errs{"Rehearse": {nil, errInjected}}, want: 1, tried: 2},
	} {
		s := &scripted{errs: tc.errs}
		e := poolEngine(t, s)
		e.pool.size = tc.size
		e.pool.fill(t.Context())
		tried := 0
		for _, call := range s.calls() {
			if call == "Rehearse" {
				tried++
			}
		}
		if len(e.pool.members) != tc.want || tried != tc.tried || e.pool.filling || e.pool.making != nil {
			t.Errorf("%d of %d members, %d tried, fills %v", len(e.pool.members), tc.size, tried, e.pool.filling)
		}
	}
	s := &scripted{}
	e := poolEngine(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.pool.fill(ctx)
	s.same(t)
}

// TestPoolAdd: nothing is left of a machine that is not to be a member.
func TestPoolAdd(t *testing.T) {
	t.Parallel()
	whole := []string{"SendFile scratch.img", "SendFile rehearsal", "Rehearse", "Status"}
	for _, tc := range []struct {
		name     string
		errs     errs
		template error
		network  error
		on       string // a call that
		do       func(p *pool)
		fails    bool
		members  int
		taken    bool
		calls    int
	}{
		{name: "good", members: 1, calls: 4},
		{name: "no network", network: errInjected, fails: true},
		{name: "no template", template: errInjected, fails: true},
		{name: "no disk", errs: errs{"SendFile": {errInjected}}, fails: true, calls: 1},
		{name: "no image", errs: errs{"SendFile": {nil, errInjected}}, fails: true, calls: 2},
		{name: "no rehearsal", errs: errs{"Rehearse": {errInjected}}, fails: true, calls: 3},
		{name: "fails in its rehearsal", errs: errs{"Status": {errInjected}}, fails: true, calls: 4},
		{
			name: "is taken in its rehearsal", errs: errs{"Status": {errInjected}}, taken: true, calls: 4,
			on: "Status", do: func(p *pool) { p.members = nil },
		},
		{name: "another kind is wanted", on: "Rehearse", do: func(p *pool) { p.kind.memory++ }, calls: 3},
		{name: "the pool is closed", on: "Rehearse", do: func(p *pool) { p.closed = true }, calls: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			e := poolEngine(t, s)
			e.machines = anyVMs{template: tc.template}
			e.networks = networks.New(func(network.Kind) (network.Provider, error) { return network.None{}, tc.network })
			if tc.do != nil {
				s.on = map[string]func(){tc.on: func() {
					e.pool.mu.Lock()
					defer e.pool.mu.Unlock()
					tc.do(&e.pool)
				}}
			}
			e.pool.making = make(chan struct{})
			if err := e.pool.add(t.Context(), wanted); (err != nil) != tc.fails || len(e.pool.members) != tc.members || e.pool.making != nil {
				t.Errorf("%d members: %v", len(e.pool.members), err)
			}
			if calls := s.calls(); len(calls) != tc.calls {
				t.Errorf("%q, not %d of %q", calls, tc.calls, whole)
			}
			names, err := e.store.Names()
			pods, readErr := os.ReadDir(e.o.Roots.Sandboxes())
			left := len(names) > 0 || len(pods) > 0 || len(e.working) > 0
			if err != nil || readErr != nil || left != (tc.members > 0 || tc.taken) {
				t.Errorf("left: %v, %v, %v", names, pods, e.working)
			}
		})
	}
}

// TestPoolRemove: a member that somebody has taken is nobody's to remove.
func TestPoolRemove(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	e := poolEngine(t, s)
	all := []*member{fake(s), fake(s), fake(s)}
	for i := range all {
		e.pool.members = slices.Clone(all)
		want := fmt.Sprint(slices.Delete(slices.Clone(all), i, i+1))
		if first, second := e.pool.remove(all[i]), e.pool.remove(all[i]); !first || second || fmt.Sprint(e.pool.members) != want {
			t.Errorf("member %d: %v, then %v", i, first, second)
		}
	}
	e.pool.members = nil
}
