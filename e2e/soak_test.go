package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/testturn"
)

// soakLength is how long an ordinary run of the tests soaks; SOAK=5m says otherwise.
const soakLength = 30 * time.Second

// TestSoak has several clients make, use and remove pods at random, while what runs them is
// killed and what they are made from is spoilt. At its end every pod that is to be there answers, every
// log is whole, and nothing is left of the others.
//
// SEED=N repeats what one run has chosen: each client and the killer choose by it, and only how long
// each of their steps takes is another time's.
func TestSoak(t *testing.T) {
	testturn.Take(t, 0, 3)
	seed, length := uint64(time.Now().UnixNano())%1e9, soakLength
	if n, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = n
	}
	if d, err := time.ParseDuration(os.Getenv("SOAK")); err == nil {
		length = d
	} else if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		length = 5 * time.Minute
	}
	t.Logf("make soak SEED=%d SOAK=%v", seed, length)
	w := newForkingWorld(t)
	s := &soak{world: w, t: t, seed: seed, dir: w.home(t, "shared"), pods: map[string]*soaked{}}
	w.must(t, "", "run", "--rm", "-q", image, "true") // so that there is a template
	w.shutdown(t)                                     // with its warm VMs
	before := w.calm()

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	for i := range soakClients {
		all.Go(func() { s.client(ctx, i) })
	}
	all.Go(func() { s.slowReader(ctx) })
	all.Go(func() { s.killer(ctx) })
	all.Wait()
	t.Logf("%d killed, done: %s", len(s.killed), s.summary())

	s.checkPods(t)
	s.removeAll(t)
	w.shutdown(t)
	for _, line := range w.settle(before) {
		// A template that was taken away is built again, in a directory that stays.
		if !strings.Contains(line, "/data/templates") && !strings.HasSuffix(line, " file /state/t") {
			t.Errorf("not as before: %s", line)
		}
	}
	// Templates are shared with other tests, which get none that was spoilt.
	if err := os.RemoveAll(w.roots().Templates()); err != nil {
		t.Error(err)
	}
}

// soak is what clients and killer share.
type soak struct {
	*world
	t    *testing.T
	seed uint64
	dir  string // of the host, which pods share

	mu     sync.Mutex
	pods   map[string]*soaked // that are to be there, by their names
	killed []disturbance
	done   map[string]int // how often each action was, and how often it failed
}

// soaked is a pod that is to be there.
type soaked struct{ name string }

// disturbance is the killing of a process, or the like.
type disturbance struct {
	what string
	at   time.Time
}

func (s *soak) disturb(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = append(s.killed, disturbance{what, time.Now()})
}

// aftermath is how long after a disturbance a command may fail of it: what was killed is noticed and
// started again by then.
const aftermath = 5 * time.Second

// disturbed tells what a command that began then may have failed of.
func (s *soak) disturbed(began time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, d := range s.killed {
		if d.at.After(began.Add(-aftermath)) {
			all = append(all, d.what)
		}
	}
	return strings.Join(all, ", ")
}

func (s *soak) count(action string, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = map[string]int{}
	}
	s.done[action]++
	if failed {
		s.done[action+" failed"]++
	}
}

func (s *soak) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.done)
}

// random is the source of one of them.
func (s *soak) random(who uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, who)) }

// keep has a pod be one that is to be there; drop has it be none.
func (s *soak) keep(p *soaked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p.name] = p
}

func (s *soak) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, name)
}

// TestShortOutputs: of many short containers, each output is what was written, byte for byte, when
// nothing is killed.
func TestShortOutputs(t *testing.T) {
	t.Parallel()
	rounds := 6
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		rounds = 500
	}
	s := &soak{world: newForkingWorld(t), t: t, seed: uint64(time.Now().UnixNano()) % 1e9}
	t.Logf("seed %d", s.seed)
	var both sync.WaitGroup
	for n := range uint64(2) {
		both.Go(func() {
			c := &soaker{soak: s, rnd: s.random(n)}
			for range rounds {
				c.short()
			}
		})
	}
	both.Wait()
	s.end(t)
}
