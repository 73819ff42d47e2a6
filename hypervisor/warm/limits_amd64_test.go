package warm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// enclose creates a cgroup and moves the process pid into it, unless pid is 0. The test removes the cgroup at its end,
// when it is empty. Memory that the process already has is not counted.
func enclose(t *testing.T, pid int, l hostcgroup.Limits) *hostcgroup.Group {
	t.Helper()
	host := hostcgroup.Find(fmt.Sprintf("bulkhead-warm-limits-%d-%d", os.Getpid(), serial.Add(1)))
	if s := host.Support(); !s.Has("memory") || !s.Has("pids") {
		t.Skipf("limits memory and processes by cgroups: %s", s.Missing)
	}
	g, err := host.Create("limited", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(patience))
		defer cancel()
		if err := g.Delete(ctx); err != nil {
			t.Error(err)
		}
		host.Tidy()
	})
	if pid != 0 {
		err = g.Add(pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestOutOfProcesses checks that a fork fails cleanly if the kernel refuses the process or its threads, and that the
// parent can fork afterwards.
func TestOutOfProcesses(t *testing.T) {
	t.Parallel()
	for room, text := range map[int]string{0: ": fork: ", 1: "make the threads again", 4: "make the threads again"} {
		t.Run(fmt.Sprintf("room for %d", room), func(t *testing.T) {
			t.Parallel()
			p := plain.start(t)
			g := enclose(t, p.pid, hostcgroup.Limits{PIDs: int64(len(tasks(t, p.pid)) + room)})
			t.Cleanup(func() { p.Close() })
			_, listener := socket(t)
			_, err := p.Fork(p.ctx, Request{Files: []qemu.Inherited{{Number: 3, File: listener}}})
			if !errors.Is(err, ErrFork) || errors.Is(err, errGone) || !errors.Is(err, unix.EAGAIN) || !strings.Contains(err.Error(), text) {
				t.Errorf("fork: %v", err)
			}
			p.alone(t)
			p.workers(t, p.ctx)
			if err := g.Set(hostcgroup.Limits{}); err != nil {
				t.Fatal(err)
			}
			c, _ := p.child(Request{})
			c.workers(t, p.ctx)
		})
	}
}

// TestOutOfMemory checks that a fork that runs out of memory at any point either reports its child or leaves none.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	rooms := []int64{4 << 10}
	step := int64(32)
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		step = 8
	}
	for kib := int64(4); kib <= 512; kib += step {
		rooms = append(rooms, kib)
	}
	for _, kib := range rooms {
		t.Run(fmt.Sprintf("room for %d KiB", kib), func(t *testing.T) {
			t.Parallel()
			p := plain.start(t)
			enclose(t, p.pid, hostcgroup.Limits{Memory: kib << 10})
			t.Cleanup(func() { p.Close() })
			_, listener := socket(t)
			a, err := p.Fork(p.ctx, Request{Files: []qemu.Inherited{{Number: 3, File: listener}}})
			switch {
			case err == nil && kib > rooms[1]:
				if err := killAndReap(a.PID); err != nil {
					t.Error(err)
				}
			case !errors.Is(err, ErrFork) || kib == rooms[0]:
				t.Errorf("fork: %v", err)
			case errors.Is(err, errGone):
				p.gone(t)
			}
			p.alone(t)
		})
	}
}

// TestChildOutOfMemory checks that a child ends if its cgroup has too little memory, and that the parent can fork
// afterwards.
func TestChildOutOfMemory(t *testing.T) {
	t.Parallel()
	p := plain.start(t)
	g := enclose(t, 0, hostcgroup.Limits{Memory: 4 << 10})
	doors, err := g.Doors()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range doors {
		t.Cleanup(func() { f.Close() })
	}
	_, listener := socket(t)
	r := Request{Files: []qemu.Inherited{{Number: 3, File: listener}}, Confinement: Confinement{Groups: doors}}
	if _, err := p.Fork(p.ctx, r); !errors.Is(err, ErrFork) || errors.Is(err, errGone) || !strings.Contains(err.Error(), "it died") {
		t.Errorf("fork: %v", err)
	}
	p.alone(t)
	if err := g.Set(hostcgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	c, _ := p.child(Request{Confinement: Confinement{Groups: doors}})
	c.workers(t, p.ctx)
}

// gone waits for the end of the parent and does the cleanup that a Parent does then.
func (p *parent) gone(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
	case <-p.ctx.Done():
		t.Fatal("the parent is not gone")
	}
	if err := killAndReap(-p.pid); err != nil {
		t.Error(err)
	}
}
