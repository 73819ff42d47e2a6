package warm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

// warmParent returns a parked parent. Its children's names must be as long as name.
func warmParent(t *testing.T, name string) (forks, *Parent) {
	t.Helper()
	library(t)
	d := newForks(t)
	saved := hypervisortest.Save(t, d.Driver, hypervisortest.VMConfig(t), func(v hypervisor.VM) { hypervisortest.Ask(t, v, "set warm") })
	p, err := d.parent(hypervisortest.Within(t), saved.VM, hypervisor.Files{Memory: saved.Memory, State: saved.State}, name)
	if err != nil {
		t.Fatal(err)
	}
	return d, p
}

// TestManyForks makes forks of one parent, in a row and four at a time, and wants an answer of each. It makes 1200 with
// BULKHEAD_TEST_LONG=1.
func TestManyForks(t *testing.T) {
	row, four := 60, 24
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		row, four = 1000, 200
	}
	d, p := warmParent(t, "fork-0000")
	for _, test := range []struct{ forks, once int }{{row, 1}, {four, 4}} {
		t.Run(fmt.Sprintf("%d at a time", test.once), func(t *testing.T) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			var times []timing
			next := make(chan int)
			for range test.once {
				wg.Go(func() {
					for i := range next {
						took, err := d.once(p, fmt.Sprintf("fork-%04d", i))
						if err != nil {
							t.Errorf("fork %d: %v", i, err)
						}
						mu.Lock()
						times = append(times, took)
						mu.Unlock()
					}
				})
			}
			for i := range test.forks {
				if t.Failed() {
					break
				}
				next <- i
			}
			close(next)
			wg.Wait()
			report(t, times)
		})
	}
}

// timing has the times of the parts of a fork.
type timing struct {
	Answer
	total time.Duration // from the request to the guest's answer
}

// once forks, asks the guest, and ends the child.
func (d forks) once(p *Parent, name string) (took timing, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), hypervisortest.Patience())
	defer cancel()
	dir, err := os.MkdirTemp("", "vm")
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	began := time.Now()
	r, a, err := p.Fork(ctx, Child{Name: name, Dir: dir})
	if err != nil {
		return took, err
	}
	took.Answer = a
	reaped := make(chan error, 1)
	go func() { _, err := procid.Reap(a.PID); reaped <- err }()
	v, err := d.Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: name, Dir: dir})
	if err != nil {
		return took, errors.Join(err, r.Process.Signal(unix.SIGKILL), <-reaped)
	}
	if err = v.Resume(ctx); err == nil {
		var answer string
		if answer, err = hypervisortest.TryAsk(v, "get"); err == nil && answer != "warm" {
			err = fmt.Errorf("the guest says %q", answer)
		}
	}
	took.total = time.Since(began)
	return took, errors.Join(err, v.Kill(ctx), v.Close(), <-reaped)
}

// report logs medians and the longest.
func report(t *testing.T, times []timing) {
	t.Helper()
	for name, of := range map[string]func(timing) time.Duration{
		"freeze": func(x timing) time.Duration { return x.Freeze }, "fork": func(x timing) time.Duration { return x.Fork },
		"ready": func(x timing) time.Duration { return x.Ready }, "answered": func(x timing) time.Duration { return x.total },
	} {
		var all []time.Duration
		for _, x := range times {
			all = append(all, of(x))
		}
		slices.Sort(all)
		if n := len(all); n > 0 {
			t.Logf("%d forks, %s: median %v, longest %v", n, name, all[n/2], all[n-1])
		}
	}
}
