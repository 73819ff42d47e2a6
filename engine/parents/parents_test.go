package parents

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestFirst checks that the first pod is a clone and starts no parent before it is up, and that concurrent ones
// wait.
func TestFirst(t *testing.T) {
	for name, test := range map[string]func(h *host){
		"one pod": func(h *host) {
			h.forked(0)
			time.Sleep(time.Minute)
			h.parents()
		},
		"a second pod in a burst": func(h *host) {
			h.forked(0)
			time.Sleep(burst - 1)
			h.forked(1)
		},
		"a second pod later": func(h *host) {
			h.forked(0)
			time.Sleep(burst)
			h.forked(0)
			time.Sleep(making)
			h.parents()
		},
		"many at once": func(h *host) {
			h.forked(0)
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if _, err := h.Fork(h.t.Context(), emulated, Child{Memory: h.template, Disk: disk}); err != nil {
						h.t.Error(err)
					}
				})
			}
			all.Wait()
			h.parents(1)
		},
		"a pod is up": func(h *host) {
			h.forked(0)
			h.Want(emulated)
			h.Want(emulated)
			time.Sleep(quiet + making - 1)
			h.parents()
			time.Sleep(time.Nanosecond)
			h.parents(1)
			h.Want(emulated)
			time.Sleep(quiet + making)
			h.parents(1)
			h.forked(1)
		},
		"a pod while one is made": func(h *host) {
			h.Want(emulated)
			time.Sleep(quiet + making/2)
			h.forked(1)
		},
		"asked for": func(h *host) {
			h.ready()
			h.forked(1)
			h.ready()
			h.parents(1)
		},
	} {
		t.Run(name, func(t *testing.T) { in(t, func(_ *testing.T, h *host) { test(h) }) })
	}
}

// TestAccelerated checks that only emulated VMs are forked.
func TestAccelerated(t *testing.T) {
	in(t, func(t *testing.T, h *host) {
		m := Key{VM: hypervisor.VMConfig{Accel: hypervisor.KVM}}
		h.Want(m)
		time.Sleep(quiet)
		_, err := h.Fork(t.Context(), m, Child{})
		if rerr := h.Ready(t.Context(), m); !errors.Is(err, ErrNone) || !errors.Is(rerr, ErrNone) || !strings.Contains(err.Error(), "kvm") {
			t.Errorf("%v, %v", err, rerr)
		}
		h.parents()
		h.known(0)
	})
}

// TestPatience checks the limit of the wait for a parent, and that ctx ends it.
func TestPatience(t *testing.T) {
	in(t, func(t *testing.T, h *host) {
		maker := h.maker
		h.maker = func(ctx context.Context, k *kind) (*parent, error) {
			time.Sleep(time.Minute)
			return maker(ctx, k)
		}
		h.forked(0)
		began := time.Now()
		h.forked(0)
		if waited := time.Since(began); waited != mostWait {
			t.Errorf("waited for %s", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Fork(ctx, emulated, Child{}); !errors.Is(err, ErrNone) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := h.Ready(ctx, emulated); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestCannotBeMade checks the growing pause after three failures. A success clears only the reason; the count
// expires with time.
func TestCannotBeMade(t *testing.T) {
	in(t, func(t *testing.T, h *host) {
		h.fail = errFake
		attempt := func(paused bool) {
			t.Helper()
			began := time.Now()
			err := h.Ready(t.Context(), emulated)
			if tried := time.Since(began) > 0; tried == paused || !errors.Is(err, ErrNone) || !errors.Is(err, errFake) {
				t.Errorf("tried %v, %v", tried, err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("several lines: %q", err)
			}
		}
		for range mostFailures {
			attempt(false)
		}
		for length := pause; length <= 4*pause; length *= 2 {
			attempt(true)
			h.forked(0)
			h.forked(0)
			h.Want(emulated)
			time.Sleep(length - 1)
			attempt(true)
			time.Sleep(time.Nanosecond)
			attempt(false)
		}
		time.Sleep(8*pause + calm + 1)
		attempt(false)
		attempt(false)
		h.fail = nil
		h.ready()
		h.forked(1)
	})
}

// TestReplaced checks that a parent is replaced after a suspicious death of a child.
func TestReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		status   unix.WaitStatus
		replaced bool
	}{
		"SIGSEGV":      {unix.WaitStatus(unix.SIGSEGV), true},
		"SIGSYS":       {unix.WaitStatus(unix.SIGSYS), true},
		"SIGABRT":      {unix.WaitStatus(unix.SIGABRT), true},
		"SIGABRT core": {unix.WaitStatus(unix.SIGABRT) | 0x80, true},
		"SIGKILL":      {unix.WaitStatus(unix.SIGKILL), false},
		"SIGTERM":      {unix.WaitStatus(unix.SIGTERM), false},
		"exit 0":       {0, false},
		"exit 1":       {1 << 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(_ *testing.T, h *host) {
				h.ready()
				pid := h.forked(1)
				h.child(pid, c.status)
				if !c.replaced {
					h.parents(1)
					time.Sleep(making)
					h.parents(1)
					return
				}
				h.parents()
				h.forked(2)
			})
		})
	}
}

// TestChildOfAnotherParent checks that a late child of an old parent does not affect the next parent.
func TestChildOfAnotherParent(t *testing.T) {
	in(t, func(_ *testing.T, h *host) {
		h.ready()
		a, b := h.forked(1), h.forked(1)
		h.child(a, unix.WaitStatus(unix.SIGSEGV))
		time.Sleep(making)
		h.child(b, unix.WaitStatus(unix.SIGSEGV))
		h.parents(2)
	})
}

// TestBad checks that a parent is not forked again after it failed, ended by itself, or lost its template.
func TestBad(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(h *host)
		alive []int // at once
		fork  int   // for the next pod
	}{
		"a fork fails":    {func(h *host) { h.made[0].err = errors.Join(errFake, ErrNone); h.forked(0) }, nil, 2},
		"never up":        {func(h *host) { h.Failed(emulated, time.Now()) }, nil, 2},
		"another's fork":  {func(h *host) { h.Failed(emulated, time.Now().Add(-1)) }, []int{1}, 1},
		"ended":           {func(h *host) { h.made[0].end() }, nil, 2},
		"its template is": {func(h *host) { h.template = &os.File{} }, []int{1}, 2},
		"no disk": {func(h *host) {
			_, err := h.Fork(h.t.Context(), emulated, Child{
				Memory: h.template, Disk: func(*os.File) (*os.File, error) { return nil, errFake },
			})
			if !errors.Is(err, errFake) {
				h.t.Error(err)
			}
		}, []int{1}, 1},
		"the pod is given up": {func(h *host) {
			ctx, cancel := context.WithCancel(h.t.Context())
			cancel()
			if _, err := h.Fork(ctx, emulated, Child{Memory: h.template, Disk: disk}); err != nil {
				h.t.Error(err)
			}
		}, []int{1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(_ *testing.T, h *host) {
				h.ready()
				c.do(h)
				h.parents(c.alive...)
				h.forked(c.fork)
				h.parents(c.fork)
			})
		})
	}
}

// TestBadForEver checks that parents that never serve are not started for ever.
func TestBadForEver(t *testing.T) {
	in(t, func(_ *testing.T, h *host) {
		h.ready()
		for i := 1; i <= mostFailures; i++ {
			h.forked(i)
			h.Failed(emulated, time.Now())
		}
		h.forked(0)
		time.Sleep(pause)
		h.ready()
		h.forked(mostFailures + 1)
	})
}

// TestRenewed checks that an old parent serves until its replacement is ready.
func TestRenewed(t *testing.T) {
	for name, age := range map[string]func(h *host){
		"forks": func(h *host) {
			for range mostForks - 1 {
				h.forked(1)
			}
		},
		"age": func(h *host) {
			for range mostAge / (idle / 2) {
				time.Sleep(idle / 2)
				h.Want(emulated)
				h.forked(1)
			}
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, h *host) {
				h.ready()
				age(h)
				h.mu.Lock()
				h.fail = errFake // the first attempt
				h.mu.Unlock()
				h.forked(1)
				time.Sleep(making)
				h.parents(1)
				h.mu.Lock()
				h.fail = nil
				block := make(chan struct{})
				h.made[0].block = block
				h.mu.Unlock()
				user := make(chan error)
				go func() {
					_, err := h.Fork(t.Context(), emulated, Child{Memory: h.template, Disk: disk})
					user <- err
				}()
				synctest.Wait()
				h.mu.Lock()
				h.made[0].block = nil
				h.mu.Unlock()
				h.forked(1) // starts another one
				time.Sleep(making)
				h.parents(1, 2)
				h.forked(2)
				close(block)
				if err := <-user; err != nil {
					t.Error(err)
				}
				h.parents(2)
				want := map[measure.Event]int{measure.WarmMade: 2, measure.WarmFailed: 1, measure.WarmRenewed: 1}
				if diff := cmp.Diff(want, h.tally.Counts()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestIdle checks that an idle parent is dropped, and that the next one starts like the first.
func TestIdle(t *testing.T) {
	in(t, func(t *testing.T, h *host) {
		h.ready()
		time.Sleep(idle - 1)
		h.forked(1)
		time.Sleep(idle - 1)
		h.parents(1)
		time.Sleep(time.Nanosecond)
		h.parents()
		if n := h.tally.Counts()[measure.WarmDropped]; n != 1 {
			t.Errorf("dropped %d times", n)
		}
		h.forked(0)
	})
}

// TestClose checks that Close returns at once and leaves nothing, whatever its parents do.
func TestClose(t *testing.T) {
	for name, begin := range map[string]func(h *host){
		"nothing":       func(*host) {},
		"a wish":        func(h *host) { h.Want(emulated) },
		"one is made":   func(h *host) { h.Want(emulated); time.Sleep(quiet + making/2) },
		"one is there":  func(h *host) { h.ready() },
		"one is forked": func(h *host) { h.ready(); h.hang() },
		"a pod waits": func(h *host) {
			h.Want(emulated)
			time.Sleep(quiet)
			go h.fork()
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, h *host) {
				begin(h)
				synctest.Wait()
				began := time.Now()
				if err := h.Close(); err != nil || time.Since(began) > 0 {
					t.Errorf("%v after %s", err, time.Since(began))
				}
				h.parents()
				h.Want(emulated)
				h.Failed(emulated, time.Now())
				if _, err := h.Fork(t.Context(), emulated, Child{Disk: disk}); !errors.Is(err, ErrNone) {
					t.Error(err)
				}
				if err := h.Ready(t.Context(), emulated); !errors.Is(err, ErrNone) {
					t.Error(err)
				}
				time.Sleep(time.Hour)
				h.parents()
			})
		})
	}
}

// hang starts a fork that does not end.
func (h *host) hang() {
	h.mu.Lock()
	h.made[0].block = make(chan struct{})
	h.mu.Unlock()
	go func() {
		if _, err := h.Fork(h.t.Context(), emulated, Child{Memory: h.template, Disk: disk}); err == nil {
			h.t.Error("forked")
		}
	}()
}
