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

	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// soakLength is the default duration of a soak. SOAK=5m sets another.
const soakLength = 30 * time.Second

// TestSoak: several clients create, use and remove pods at random, while processes are killed and templates are
// spoilt. At the end every expected pod answers, every log is complete, and nothing is left of the other pods.
//
// SEED=N repeats the random choices of a run. The durations of the steps still differ.
func TestSoak(t *testing.T) {
	testturn.SkipUnless(t, 0, 3)
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
	w.must(t, "", "run", "--rm", "-q", image, "true") // so that a template exists
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
	for _, line := range w.awaitSame(before) {
		// A removed template is built again, in a directory that stays.
		if !strings.Contains(line, "/data/templates") && !strings.HasSuffix(line, " file /state/t") {
			t.Errorf("not as before: %s", line)
		}
	}
	// Other tests share the templates and must not get spoilt ones.
	if err := os.RemoveAll(w.roots().Templates()); err != nil {
		t.Error(err)
	}
}

// soak is shared by the clients and the killer.
type soak struct {
	*world
	t    *testing.T
	seed uint64
	dir  string // of the host, shared by pods

	mu     sync.Mutex
	pods   map[string]*soaked // the expected ones, by name
	killed []disturbance
	done   map[string]int // how often each action was done, and how often it failed
}

// soaked is an expected pod.
type soaked struct{ name string }

// disturbance is the killing of a process or something similar.
type disturbance struct {
	what string
	at   time.Time
}

func (s *soak) disturb(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = append(s.killed, disturbance{what, time.Now()})
}

// aftermath is how long after a disturbance a command may fail because of it. By then, a killed process was noticed
// and restarted.
const aftermath = 5 * time.Second

// disturbed returns the disturbance that may have made a command fail that began at this time.
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

// random returns a client's source of random numbers.
func (s *soak) random(who uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, who)) }

// keep adds a pod to the expected ones; drop removes it.
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

// TestShortOutputs: without kills, the output of each of many short containers is complete, byte for byte.
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
