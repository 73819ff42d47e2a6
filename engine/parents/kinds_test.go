package parents

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// of makes h ask for a tenant's VMs.
func (h *host) of(tenant string) *host {
	h.key.Tenant = tenant
	return h
}

// known fails the test if the number of known kinds differs.
func (h *host) known(want int) {
	h.t.Helper()
	h.Parents.mu.Lock()
	defer h.Parents.mu.Unlock()
	if n := len(h.kinds); n != want {
		h.t.Errorf("%d kinds are remembered, not %d", n, want)
	}
}

// full creates the maximum of parents, for tenants t0 and so on, each forked a second after the previous one.
func (h *host) full() (all []int) {
	h.t.Helper()
	for i := range mostParents {
		h.of(fmt.Sprintf("t%d", i)).ready()
		time.Sleep(time.Second)
		h.forked(i + 1)
		all = append(all, i+1)
	}
	h.parents(all...)
	return all
}

// TestTenants checks that a tenant's parent does not affect other tenants.
func TestTenants(t *testing.T) {
	for name, test := range map[string]func(h *host){
		"forks of their own": func(h *host) { h.of("b").forked(2) },
		"a failure": func(h *host) {
			h.of("b").Failed(h.key, time.Now())
			h.parents(1)
			h.forked(3)
			h.of("a").forked(1)
		},
		"many failures": func(h *host) {
			h.of("b").Failed(h.key, time.Now())
			for i := 3; i < 2+mostFailures; i++ {
				h.forked(i)
				h.Failed(h.key, time.Now())
			}
			h.forked(0)
			h.of("a").forked(1)
			h.of("c").ready()
		},
		"no tenant": func(h *host) {
			h.of("").ready()
			h.forked(3)
			h.parents(1, 2, 3)
		},
		"another configuration": func(h *host) {
			h.key.VM.VCPUs++
			h.ready()
			h.forked(3)
		},
		"a first pod": func(h *host) {
			h.of("c").forked(0)
			h.of("d").forked(0) // no burst of c's
			h.parents(1, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(_ *testing.T, h *host) {
				h.of("a").ready()
				h.of("b").ready()
				h.forked(2)
				h.of("a").forked(1)
				test(h)
			})
		})
	}
}

// TestRoom checks that the number of parents is bounded. One more replaces the least recently used one, unless all
// are busy.
func TestRoom(t *testing.T) {
	for name, test := range map[string]func(h *host, all []int){
		"the eldest goes": func(h *host, all []int) {
			time.Sleep(busy)
			h.of("new").ready()
			h.parents(append(all[1:], mostParents+1)...)
		},
		"a fork counts": func(h *host, all []int) {
			time.Sleep(busy)
			h.of("t0").forked(1)
			h.of("new").ready()
			h.parents(append([]int{1}, append(all[2:], mostParents+1)...)...)
		},
		"all are busy": func(h *host, all []int) {
			h.of("new")
			if err := h.Ready(h.t.Context(), h.key); !errors.Is(err, ErrNone) || !errors.Is(err, errBusy) {
				h.t.Error(err)
			}
			h.forked(0)
			h.forked(0)
			h.Want(h.key)
			time.Sleep(quiet)
			h.parents(all...)
		},
		"all are being made": func(h *host, _ []int) {
			time.Sleep(idle)
			h.parents()
			for i := range 2 * mostParents {
				h.Want(h.of(fmt.Sprintf("n%d", i)).key)
			}
			time.Sleep(quiet + making)
			synctest.Wait()
			if n := len(h.made); n != 2*mostParents {
				h.t.Errorf("%d were made at once", n-mostParents)
			}
		},
		"another of the same": func(h *host, all []int) {
			h.of("t3").Failed(h.key, time.Now())
			h.forked(mostParents + 1)
			h.parents(append(append(all[:3:3], all[4:]...), mostParents+1)...)
		},
		"one that is forked": func(h *host, all []int) {
			time.Sleep(busy)
			h.mu.Lock()
			block := make(chan struct{})
			h.made[0].block = block
			h.mu.Unlock()
			user, key := make(chan error), h.of("t0").key
			go func() {
				_, err := h.Fork(h.t.Context(), key, Child{Memory: h.template, Disk: disk})
				user <- err
			}()
			synctest.Wait()
			h.of("new").ready()
			h.parents(append(all, mostParents+1)...)
			close(block)
			if err := <-user; err != nil {
				h.t.Error(err)
			}
			h.parents(append(all[1:], mostParents+1)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(_ *testing.T, h *host) { test(h, h.full()) })
		})
	}
}

// TestForgotten checks that unused kinds are forgotten, and that a failure is remembered while it matters.
func TestForgotten(t *testing.T) {
	in(t, func(_ *testing.T, h *host) {
		for i := range 1000 {
			h.of(fmt.Sprintf("t%d", i)).forked(0)
			time.Sleep(burst)
		}
		h.known(1)
		h.of("warm").ready()
		h.known(1)
		h.fail = errFake
		for range mostFailures {
			if err := h.Ready(h.t.Context(), h.of("bad").key); !errors.Is(err, errFake) {
				h.t.Error(err)
			}
		}
		h.of("next").forked(0)
		h.known(3)
		for range (pause + calm) / (idle / 2) {
			time.Sleep(idle / 2)
			h.of("warm").forked(1)
		}
		h.of("another").forked(0)
		h.known(3) // kinds with parents or failures
		time.Sleep(pause + 1)
		h.of("last").forked(0)
		h.known(2)
		h.parents(1)
	})
}
