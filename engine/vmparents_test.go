package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestParentsRenewed checks that parents are replaced while pods start, and that no pod is affected.
func TestParentsRenewed(t *testing.T) {
	ctx, e := warmEngine(t, func(o *engine.Options) { o.ForksPerParent = 3 })
	const pods, atOnce = 12, 4
	var clones atomic.Int32
	names := make(chan string, pods)
	for i := range pods {
		names <- string(rune('a' + i))
	}
	close(names)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for name := range names {
				id, err := e.StartPod(ctx, podRequest(name))
				if err != nil {
					t.Error(err)
					return
				}
				f, err := e.Facts(ctx, id)
				if err != nil {
					t.Error(err)
				} else if !f.Forked {
					clones.Add(1)
					t.Logf("%s: %s", name, f.ForkNote)
				}
			}
		})
	}
	all.Wait()
	if n := len(e.Pods()); n != pods || clones.Load() > 1 {
		t.Errorf("%d pods with %d clones", n, clones.Load())
	}
}

// TestMemoryGivenBack checks that pods release their memory, and that a parent does when it is dropped.
func TestMemoryGivenBack(t *testing.T) {
	ctx, e := warmEngine(t)
	processes, before := children(t)
	if processes != 1 {
		t.Errorf("%d processes in addition to the parent", processes-1)
	}
	for _, name := range []string{"a", "b", "c"} {
		f := fork(ctx, t, e, podRequest(name), true)
		startContainer(ctx, t, e, f.ID, "c", "sleep", "1000")
	}
	_, with := children(t)
	for _, p := range e.Pods() {
		if err := e.RemovePod(ctx, p.ID); err != nil {
			t.Error(err)
		}
	}
	until(t, "pods' processes end", func() bool { n, _ := children(t); return n == 1 })
	_, after := children(t)
	t.Logf("PSS in MiB: %d, with three pods %d, without them %d", before>>10, with>>10, after>>10)
	// Memory that it shared with its forks is its own again.
	if with <= before || after > before+16<<10 {
		t.Errorf("%d KiB, with pods %d, without them %d", before, with, after)
	}
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	if n, size := children(t); n != 0 {
		t.Errorf("%d processes left with %d KiB", n, size)
	}
}

// children returns the number of live processes that this one has started, and their total PSS in KiB.
func children(t *testing.T) (n, size int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		status, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) ||
			strings.Contains(string(status), "\nState:\tZ") {
			continue
		}
		n++
		rollup, err := os.ReadFile(filepath.Join(filepath.Dir(path), "smaps_rollup"))
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(rollup), "\nPss:")
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Error(err)
		}
		size += kib
	}
	return n, size
}

// TestForksAreAdopted checks that a fork survives its shim, and its engine with the parent.
func TestForksAreAdopted(t *testing.T) {
	o := enginetest.Real(t, enginetest.Forks)
	ctx := testdeadline.Context(t, 4*time.Minute)
	e, err := engine.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kinds().Warm(ctx, kinds.Request{}); err != nil {
		t.Error(err)
	}
	before := fork(ctx, t, e, podRequest("p"), true)
	c := startContainer(ctx, t, e, before.ID, "c", "sleep", "1000")
	answers := func(e *engine.Engine) bool {
		out, _, err := output(ctx, e, c, []string{"echo", "here"}, testdeadline.For(20*time.Second))
		return err == nil && string(out) == "here\n"
	}
	if err := unix.Kill(before.ShimPID, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	until(t, "there is another shim", func() bool {
		f, err := e.Facts(ctx, before.ID)
		return err == nil && f.ShimPID != 0 && f.ShimPID != before.ShimPID && f.VMPID == before.VMPID && answers(e)
	})
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	e = enginetest.Open(t, o)
	if f, err := e.Facts(ctx, before.ID); err != nil || !f.Forked || f.VMPID != before.VMPID || !answers(e) {
		t.Errorf("opened again: %+v, %v", f, err)
	}
	if err := e.StopPod(ctx, before.ID); err != nil {
		t.Error(err)
	}
	if err := e.RemovePod(ctx, before.ID); err != nil {
		t.Error(err)
	}
	if err := e.Close(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
	if n, _ := children(t); n != 0 {
		t.Errorf("%d processes left", n)
	}
	enginetest.NothingLeft(t, o)
}
