// Package procs looks at the processes that a benchmark has brought about: what
// they weigh, what they use, when they come to rest and whether any is left.
package procs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Process is a process at the time when it was looked at.
type Process struct {
	PID, Parent int
	Name        string // the kernel's, 15 bytes at most
	Zombie      bool
	Ticks       uint64 // of CPU, user and system together, its threads included
}

// TicksPerSecond is the unit of Process.Ticks, the same on every Linux that Go
// runs on.
const TicksPerSecond = 100

// Below returns the processes that descend from pid, parents first.
func Below(pid int) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]Process{}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := Look(id)
		if err != nil {
			continue // gone meanwhile
		}
		children[p.Parent] = append(children[p.Parent], p)
	}
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
	}
	return found, nil
}

// Look returns what one process is and has used.
func Look(pid int) (Process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	return parseStat(pid, b)
}

// parseStat reads /proc/PID/stat, in which the name may contain anything.
func parseStat(pid int, b []byte) (Process, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("process %d: no name in its stat", pid)
	}
	rest := strings.Fields(string(b[end+1:]))
	if len(rest) < 13 {
		return Process{}, fmt.Errorf("process %d: its stat is cut short", pid)
	}
	parent, err := strconv.Atoi(rest[1])
	user, err2 := strconv.ParseUint(rest[11], 10, 64)
	system, err3 := strconv.ParseUint(rest[12], 10, 64)
	if err := errors.Join(err, err2, err3); err != nil {
		return Process{}, fmt.Errorf("process %d: its stat: %w", pid, err)
	}
	return Process{PID: pid, Parent: parent, Name: string(b[open+1 : end]), Zombie: rest[0] == "Z", Ticks: user + system}, nil
}

// Args is the command line of a process, empty when it is gone.
func Args(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// Getenv is a variable of a process's environment at its start.
func Getenv(pid int, name string) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for _, pair := range strings.Split(string(b), "\x00") {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}
