package parents

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/warm"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/measuretest"
)

// making is the time for starting a fake parent.
const making = 2 * time.Second

var errFake = errors.New("injected")

// host creates fake parents.
type host struct {
	t *testing.T
	*Parents
	template *os.File
	key      Key // used by the methods of host
	tally    *measuretest.Tally

	mu      sync.Mutex
	fail    error // of starts from now on
	made    []*fakeParent
	ends    map[int]chan unix.WaitStatus // by child
	lastPID int
}

// fakeParent is a fake process.
type fakeParent struct {
	h     *host
	forks int
	err   error         // of forks from now on
	block chan struct{} // blocks forks, if set
	done  chan struct{}
	once  sync.Once
}

// in runs a test in a bubble, with a host that must be clean at the end.
func in(t *testing.T, test func(t *testing.T, h *host)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "warm")
	synctest.Test(t, func(t *testing.T) {
		tally := &measuretest.Tally{}
		p := New(Options{Dir: dir, Observer: tally, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		h := &host{t: t, Parents: p, ends: map[int]chan unix.WaitStatus{}, template: &os.File{}, key: emulated, tally: tally}
		p.maker, p.reaper = h.newParent, h.reap
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("left behind: %v", err)
			}
			for i, f := range h.made {
				if f.alive() {
					t.Errorf("parent %d lives on", i)
				}
			}
			for _, end := range h.ends {
				close(end) // the bubble waits for all waiting goroutines
			}
		}()
		test(t, h)
	})
}

func (h *host) newParent(ctx context.Context, k *kind) (*parent, error) {
	select {
	case <-time.After(making):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		return nil, h.fail
	}
	f := &fakeParent{h: h, done: make(chan struct{})}
	h.made = append(h.made, f)
	dir := filepath.Join(h.o.Dir, strconv.Itoa(len(h.made)))
	disk, err := os.Open(os.DevNull)
	return &parent{process: f, dir: dir, disk: disk, memory: h.template}, errors.Join(err, os.MkdirAll(dir, 0o700))
}

func (h *host) reap(pid int) (unix.WaitStatus, error) {
	h.mu.Lock()
	end := h.ends[pid]
	h.mu.Unlock()
	return <-end, nil
}

// child ends a child with a wait status.
func (h *host) child(pid int, status unix.WaitStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[pid] <- status
}

func (f *fakeParent) Fork(ctx context.Context, _ warm.Child) (r hypervisor.Record, a warm.Answer, err error) {
	f.h.mu.Lock()
	block := f.block
	f.h.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return r, a, ctx.Err()
		}
	}
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	if f.err != nil {
		return r, a, f.err
	}
	if !f.alive() {
		return r, a, errors.New("the parent is gone")
	}
	f.forks++
	f.h.lastPID++
	f.h.ends[f.h.lastPID] = make(chan unix.WaitStatus, 1)
	return hypervisor.Record{Process: procid.ID{PID: f.h.lastPID}}, a, nil
}

func (f *fakeParent) Done() <-chan struct{} { return f.done }

func (f *fakeParent) Close(context.Context) error { f.end(); return nil }

func (f *fakeParent) end() { f.once.Do(func() { close(f.done) }) }

func (f *fakeParent) alive() bool {
	select {
	case <-f.done:
		return false
	default:
		return true
	}
}

var emulated = Key{VM: hypervisor.VMConfig{Accel: hypervisor.TCG, VCPUs: 1}}

// disk returns a child's disk.
func disk(*os.File) (*os.File, error) { return os.Open(os.DevNull) }

// fork forks, and returns the child and the number of its parent, or 0 and an error.
func (h *host) fork() (pid, parent int, err error) {
	before := h.forks()
	r, err := h.Fork(h.t.Context(), h.key, Child{ID: "0123456789ab", Memory: h.template, Disk: disk})
	for i, n := range h.forks() {
		if i >= len(before) || n > before[i] {
			parent = i + 1
		}
	}
	return r.Process.PID, parent, err
}

// forks returns the number of forks of each parent so far.
func (h *host) forks() (n []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.made {
		n = append(n, f.forks)
	}
	return n
}

// forked forks, and fails the test if the child's parent has another number; 0 means that there is no parent.
func (h *host) forked(want int) (pid int) {
	h.t.Helper()
	pid, got, err := h.fork()
	if got != want || (err == nil) != (want > 0) || err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, warm.ErrFork) {
		h.t.Errorf("a fork of parent %d instead of %d: %v", got, want, err)
	}
	return pid
}

// parents fails the test if other parents are alive once the host is idle.
func (h *host) parents(want ...int) {
	h.t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	var got []int
	for i, f := range h.made {
		if f.alive() {
			got = append(got, i+1)
		}
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("parents %v live, not %v", got, want)
	}
}

// ready waits until there is a parent.
func (h *host) ready() {
	h.t.Helper()
	if err := h.Ready(h.t.Context(), h.key); err != nil {
		h.t.Fatal(err)
	}
}
