package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// realHost is this host's, with a directory of the test's own.
func realHost(t *testing.T) *Host {
	t.Helper()
	h := Find(fmt.Sprintf("bulkhead-test-%d-%s", os.Getpid(), strings.ToLower(filepath.Base(t.Name()))))
	if h.Support().Version == 0 {
		t.Skipf("no cgroups for this user: %s", h.Support().Missing)
	}
	t.Logf("%+v", h.Support())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := h.Reap(ctx, func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		for _, dir := range h.Dirs("") {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("left behind: %s", dir)
			}
		}
	})
	return h
}

func start(t *testing.T, g *Group, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if err := g.Start(cmd, (*exec.Cmd).Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// unifiedGroup returns a real group of cgroup2, even without limits, wherever it is mounted.
func unifiedGroup(t *testing.T) *Group {
	t.Helper()
	all, err := system.hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	u, ok := all[""]
	if !ok {
		t.Skip("cgroup2 is not mounted")
	}
	dir := filepath.Join(u.mount, u.own, fmt.Sprintf("bulkhead-test-%d-%s", os.Getpid(), strings.ToLower(filepath.Base(t.Name()))))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no group of cgroup2 can be made: %v", err)
	}
	g := At([]string{dir})
	t.Cleanup(func() { _ = g.KillAndDelete(context.Background()) })
	return g
}

// Processes start in their group, and end with it: in this host's group and in one of cgroup2.
func TestProcesses(t *testing.T) {
	for _, version := range []string{"host", "unified"} {
		t.Run(version, func(t *testing.T) {
			var g *Group
			if version == "host" {
				h := realHost(t)
				var err error
				if g, err = h.Create("pod", Limits{Memory: 64 << 20, PIDs: 20}); err != nil {
					t.Fatal(err)
				}
			} else {
				g = unifiedGroup(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			born := start(t, g, "sh", "-c", "sleep 100 & exec sleep 100")
			moved := exec.Command("sleep", "100")
			if err := moved.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = moved.Process.Kill(); _ = moved.Wait() })
			if err := g.Add(moved.Process.Pid); err != nil {
				t.Fatal(err)
			}
			pids, err := g.PIDs()
			if err != nil || !slices.Contains(pids, born.Process.Pid) || !slices.Contains(pids, moved.Process.Pid) {
				t.Errorf("processes %v, want %d and %d: %v", pids, born.Process.Pid, moved.Process.Pid, err)
			}
			short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
			if err := g.Delete(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a group with processes: %v", err)
			}
			stop()
			// The end of the last process ends the wait of Delete.
			deleted := make(chan error, 1)
			go func() { deleted <- g.Delete(ctx) }()
			if err := g.Kill(ctx); err != nil {
				t.Error(err)
			}
			if err := <-deleted; err != nil {
				t.Error(err)
			}
			if err := errors.Join(g.Delete(ctx), g.Kill(ctx)); err != nil {
				t.Errorf("once more: %v", err)
			}
			if err := born.Wait(); err == nil || born.ProcessState.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
				t.Errorf("the process: %v", err)
			}
		})
	}
}

// Many concurrent starts: none of their threads stays in a group.
func TestThreads(t *testing.T) {
	h := realHost(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	results := make(chan error)
	const n = 20
	for i := range n {
		go func() {
			g, err := h.Create(fmt.Sprintf("pod%d", i), Limits{})
			if err == nil {
				cmd := exec.Command("true")
				if err = g.Start(cmd, (*exec.Cmd).Start); err == nil {
					err = cmd.Wait()
				}
				err = errors.Join(err, g.Delete(ctx))
			}
			results <- err
		}()
	}
	for range n {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// The kernel limits a group's memory, and counts the kill.
func TestMemoryIsAWall(t *testing.T) {
	h := realHost(t)
	if !h.Support().Has("memory") {
		t.Skip("no memory controller")
	}
	g, err := h.Create("greedy", Limits{Memory: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Set(Limits{Memory: 512 << 20}); err != nil { // a larger one
		t.Error(err)
	}
	if err := g.Set(Limits{Memory: 32 << 20}); err != nil { // and a smaller
		t.Fatal(err)
	}
	cmd := exec.Command("dd", "if=/dev/zero", "of=/dev/null", "bs=128M", "count=1")
	err = g.Start(cmd, (*exec.Cmd).Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("128 MiB in a group of 32: %v", err)
	}
}

// A group without an owner is reaped, a wanted one is not.
func TestReap(t *testing.T) {
	h := realHost(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var cmds []*exec.Cmd
	for _, name := range []string{"keep", "drop"} {
		g, err := h.Create(name, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, start(t, g, "sleep", "100"))
	}
	if err := h.Reap(ctx, func(name string) bool { return name == "keep" }); err != nil {
		t.Fatal(err)
	}
	names, err := h.Names()
	if err != nil || !slices.Equal(names, []string{"keep"}) {
		t.Errorf("groups %v %v", names, err)
	}
	if err := cmds[1].Wait(); err == nil {
		t.Error("the dropped group's process lives")
	}
	if err := cmds[0].Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the kept group's process: %v", err)
	}
}

func BenchmarkCreateStart(b *testing.B) {
	h := Find(fmt.Sprintf("bulkhead-bench-%d", os.Getpid()))
	if h.Support().Version == 0 {
		b.Skip(h.Support().Missing)
	}
	defer h.Tidy()
	plain := os.Getenv("PLAIN") != ""
	for b.Loop() {
		var g *Group
		if !plain {
			var err error
			if g, err = h.Create("pod", Limits{Memory: 1 << 30, Quota: 50000, PIDs: 512}); err != nil {
				b.Fatal(err)
			}
		}
		cmd := exec.Command("true")
		if err := g.Start(cmd, (*exec.Cmd).Start); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = cmd.Wait()
		if err := g.KillAndDelete(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
