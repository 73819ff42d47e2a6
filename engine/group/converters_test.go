package group

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestConverters checks that the cgroup exists and is journalled from the first to the last converter.
func TestConverters(t *testing.T) {
	g, log := onHost(t)
	ctx := testdeadline.Context(t, 5*time.Second)
	dirs, record := g.host.Dirs(convertersName), g.converters.journal
	first, leaveFirst := g.Converters(ctx, 64<<20)
	second, leaveSecond := g.Converters(ctx, 64<<20)
	if first == nil || first != second || exist(dirs) != len(dirs) {
		t.Fatalf("groups %v and %v, %d exist, log: %s", first, second, exist(dirs), log)
	}
	for _, dir := range dirs {
		if text, err := os.ReadFile(filepath.Join(dir, "memory.limit_in_bytes")); err == nil && string(text) != "67108864\n" {
			t.Errorf("%s may take %s", dir, text)
		}
	}
	if undo, err := record.Pending(ctx); err != nil || len(undo) != 1 {
		t.Errorf("on record are %v, %v", undo, err)
	}
	leaveFirst()
	leaveFirst() // counts once
	if err := g.Reap(ctx, func(string) bool { return false }); err != nil || exist(dirs) != len(dirs) {
		t.Errorf("reaped while one is left: %d, %v", exist(dirs), err)
	}
	leaveSecond()
	if undo, err := record.Pending(ctx); err != nil || len(undo)+exist(dirs)+exist(g.host.Dirs("")) != 0 {
		t.Errorf("left are %d groups and %v, %v", exist(dirs), undo, err)
	}
	if _, leave := g.Converters(ctx, 64<<20); exist(dirs) != len(dirs) {
		t.Error("not made again")
	} else {
		leave()
	}
	if log.Len() != 0 {
		t.Errorf("the log says %s", log)
	}
}

// TestConvertersOfAKilledEngine checks that the next engine ends the remaining cgroup, even if its own cgroups lie
// elsewhere.
func TestConvertersOfAKilledEngine(t *testing.T) {
	g, log := onHost(t)
	ctx := testdeadline.Context(t, 5*time.Second)
	group, _ := g.Converters(ctx, 64<<20)
	waiting := exec.CommandContext(ctx, "sleep", "100")
	if err := group.Start(waiting, (*exec.Cmd).Start); err != nil {
		t.Fatal(err)
	}
	next := New(&hostcgroup.Host{}, t.TempDir(), slog.New(slog.NewTextHandler(log, nil)))
	next.converters.journal = g.converters.journal
	if err := next.Reap(ctx, func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if err := waiting.Wait(); err == nil || ctx.Err() != nil {
		t.Errorf("the group's process: %v", err)
	}
	if n := exist(g.host.Dirs(convertersName)) + exist(g.host.Dirs("")); n != 0 {
		t.Errorf("%d directories are left", n)
	}
}

// TestConvertersWithoutAGroup checks that converters run without a cgroup, and that the log says so once.
func TestConvertersWithoutAGroup(t *testing.T) {
	g, log := onHost(t)
	for name, without := range map[string]*Groups{
		"no cgroups": New(&hostcgroup.Host{}, t.TempDir(), slog.New(slog.NewTextHandler(log, nil))),
		"no journal": New(g.host, "/dev/null", slog.New(slog.NewTextHandler(log, nil))),
	} {
		log.Reset()
		for range 2 {
			group, leave := without.Converters(t.Context(), 64<<20)
			if group != nil {
				t.Errorf("%s: there is a group", name)
			}
			leave()
		}
		if n := strings.Count(log.String(), "converters of images have no cgroup"); n != 1 {
			t.Errorf("%s: the log says it %d times: %s", name, n, log)
		}
	}
}
