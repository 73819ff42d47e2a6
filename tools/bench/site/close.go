package site

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

// goneWait bounds the wait for processes that are being stopped.
const goneWait = 20 * time.Second

// Close removes all pods, stops the engine, and returns what is left in the site's directories. Leftover handles
// remaining processes.
func (s *Site) Close(ctx context.Context) (left []string, err error) {
	pid, none := s.Engine()
	if none == nil {
		pods, psErr := s.Pods(ctx) // also pods of a start that failed half-way
		err = errors.Join(err, psErr, s.Remove(ctx, slices.Sorted(maps.Keys(pods))...))
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGTERM))
		err = errors.Join(err, gone(ctx, pid))
	}
	for _, dir := range []string{
		filepath.Join(s.Roots.Data, "sandboxes"), filepath.Join(s.Roots.Data, "pods"),
		filepath.Join(s.Roots.State, "p"), filepath.Join(s.Roots.State, "t"),
	} {
		entries, readErr := os.ReadDir(dir)
		if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
		for _, e := range entries {
			left = append(left, "file "+filepath.Join(dir, e.Name()))
		}
	}
	networks, globErr := filepath.Glob(filepath.Join(s.Roots.Data, "cni", "*", "*.json"))
	err = errors.Join(err, globErr)
	for _, path := range networks {
		left = append(left, "file "+path)
	}
	for _, instance := range []string{"run", "cri"} {
		states, readErr := os.ReadDir(s.Roots.Instance(instance))
		if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
		for _, e := range states {
			if len(e.Name()) == 64 || strings.HasSuffix(e.Name(), ".sock") && e.Name() != instance+".sock" {
				left = append(left, "state "+filepath.Join(s.Roots.Instance(instance), e.Name()))
			}
		}
	}
	return left, err
}

// gone waits until a process no longer exists.
func gone(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, goneWait)
	defer cancel()
	for {
		if p, err := procs.Get(pid); err != nil || p.Zombie {
			return nil
		}
		if err := procs.Wait(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("process %d does not exit: %w", pid, err)
		}
	}
}

// Leftover returns what still runs below procs.Root or is mounted in dir after all sites are closed. It kills and
// unmounts it.
func Leftover(ctx context.Context, dir string) []string {
	var left []string
	// Processes that are being stopped may take a moment.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var alive []procs.Process
	for {
		all, err := procs.Below(procs.Root())
		if err != nil {
			return []string{err.Error()}
		}
		alive = slices.DeleteFunc(all, func(p procs.Process) bool { return p.Zombie || p.PID == os.Getpid() })
		if len(alive) == 0 || procs.Wait(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	for _, p := range alive {
		left = append(left, fmt.Sprintf("process %d (%s)", p.PID, p.Name))
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return append(left, err.Error())
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			left = append(left, "mount "+f[4])
			_ = syscall.Unmount(f[4], syscall.MNT_DETACH) // it may be below another mount
		}
	}
	return left
}
