package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testhost/leftover"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// crowd creates several containers at the same time while no engine runs. Each command starts an engine, and one engine
// serves all. Then crowd ends the engine, and deletes the containers in the same way.
func crowd(ctx context.Context, t *testing.T, c *contract) {
	n, rounds := 6, 1
	if testturn.Long() {
		n, rounds = 20, 5
	}
	var bundles []string
	for range n {
		bundles = append(bundles, writeBundle(t, newSpec("sleep", "1000")))
	}
	for range rounds {
		var all sync.WaitGroup
		for i, bundle := range bundles {
			all.Go(func() { c.create(ctx, t, fmt.Sprint("crowd", i), bundle) })
		}
		all.Wait()
		endEngine(ctx, t)
		for i := range bundles {
			all.Go(func() {
				if r := c.run(ctx, t, "delete", "--force", fmt.Sprint("crowd", i)); r.code != 0 {
					t.Errorf("delete: %+v", r)
				}
			})
		}
		all.Wait()
		endEngine(ctx, t)
		if t.Failed() {
			return
		}
	}
}

// endEngine terminates the engine and waits for its end. Its pods live on.
func endEngine(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, id := range programs(t, "bulkhead-engine") {
		if err := id.Signal(unix.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := id.Wait(ctx); err != nil {
			t.Fatalf("the engine does not end: %v", err)
		}
	}
}

// programs returns the processes of a program.
func programs(t *testing.T, name string) (found []procid.ID) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if args := procid.Args(pid); len(args) > 0 && filepath.Base(args[0]) == name {
			if id, err := procid.Of(pid); err == nil {
				found = append(found, id)
			}
		}
	}
	return found
}

// TestMany runs containers one after the other, and checks that they leave nothing.
func TestMany(t *testing.T) {
	if testing.Short() {
		t.Skip("boots VMs")
	}
	n := 10
	if testturn.Long() {
		n = 200
	}
	for _, r := range runtimes(t) {
		if !r.vm {
			continue
		}
		c, bundle := newContract(t, r), writeBundle(t, newSpec("true"))
		one := func(i int) {
			c.do(patience(t, r), t, "run", "--bundle", bundle, fmt.Sprint("many", i))
		}
		one(0) // it starts the engine, and makes directories that stay
		before := leftover.Take(t, stateDirs...)
		for i := range n {
			one(1 + i)
		}
		before.ExpectNothingNew(testdeadline.Context(t, 20*time.Second), t, stateDirs...)
		if left, err := os.ReadDir(c.root); err != nil || len(left) > 0 {
			t.Errorf("records left: %v, %v", left, err)
		}
		if left := leftover.Files(t, "/run/bulkhead/run/pods", "/var/lib/bulkhead/sandboxes"); len(left) > 2 {
			t.Errorf("files of pods left: %q", left)
		}
	}
}
