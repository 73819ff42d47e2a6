package procid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// KillAll kills every process for which match returns true, including those that start meanwhile. It returns the number
// of killed processes when none is left.
func KillAll(ctx context.Context, match func(pid int) bool) (killed int, err error) {
	for {
		found, err := find(match)
		if err != nil || len(found) == 0 {
			return killed, err
		}
		for _, id := range found { // all of them first
			if err := id.Signal(unix.SIGKILL); err != nil && !errors.Is(err, ErrGone) {
				return killed, err
			}
		}
		for _, id := range found {
			if err := id.Wait(ctx); err != nil {
				return killed, fmt.Errorf("wait for the end of process %d, which was killed: %w", id.PID, err)
			}
			killed++
		}
		if err := ctx.Err(); err != nil {
			return killed, err
		}
	}
}

func find(match func(pid int) bool) ([]ID, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	var found []ID
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() || !match(pid) {
			continue
		}
		// Match again now that its identity is known: the pid may have been reused.
		if id, err := Of(pid); err == nil && match(pid) {
			found = append(found, id)
		}
	}
	return found, nil
}

// RunsAs reports whether a process runs as uid, or could change back to it. The owner of its directory in /proc is not
// reliable: a process can change that to root.
func RunsAs(pid, uid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), "\nUid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	return slices.Contains(strings.Fields(line), strconv.Itoa(uid))
}

// Args returns a process's arguments with its name, as the process itself presents them.
func Args(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}
