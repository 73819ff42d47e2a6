// Package procs inspects the processes of a benchmark: their memory, their CPU time, when they come to rest and
// whether any is left.
package procs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is the state of a process at one moment.
type Process struct {
	PID, Parent int
	Name        string // the kernel's, at most 15 bytes
	Zombie      bool
	Ticks       uint64 // of CPU, user and system, all threads together
	Reaped      uint64 // the same for the children that it has reaped, and their children
}

// TicksPerSecond is the unit of Process.Ticks. It is the same on every Linux that Go supports.
const TicksPerSecond = 100

// Below returns the descendants of pid, parents first.
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
		p, err := Get(id)
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

// Get returns the state of one process.
func Get(pid int) (Process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	return parseStat(pid, b)
}

// parseStat parses /proc/PID/stat. The name may contain any characters.
func parseStat(pid int, b []byte) (Process, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("process %d: its stat has no name", pid)
	}
	rest := strings.Fields(string(b[end+1:]))
	if len(rest) < 15 {
		return Process{}, fmt.Errorf("process %d: its stat is truncated", pid)
	}
	parent, err := strconv.Atoi(rest[1])
	user, err2 := strconv.ParseUint(rest[11], 10, 64)
	system, err3 := strconv.ParseUint(rest[12], 10, 64)
	childUser, err4 := strconv.ParseUint(rest[13], 10, 64)
	childSystem, err5 := strconv.ParseUint(rest[14], 10, 64)
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		return Process{}, fmt.Errorf("process %d: its stat: %w", pid, err)
	}
	return Process{
		PID: pid, Parent: parent, Name: string(b[open+1 : end]), Zombie: rest[0] == "Z",
		Ticks: user + system, Reaped: childUser + childSystem,
	}, nil
}

// Args returns the command line of a process, empty if the process is gone.
func Args(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// Getenv returns a variable of a process's initial environment.
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

// Others returns the CPU ticks since boot of all processes except Root, its descendants and the processes that
// these have reaped.
func Others() (int64, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	all, err := parseBusy(string(b))
	if err != nil {
		return 0, err
	}
	mine, err := Below(Root())
	if err != nil {
		return 0, err
	}
	root, err := Get(Root())
	if err != nil {
		return 0, err
	}
	for _, p := range append(mine, root) {
		all -= int64(p.Ticks + p.Reaped)
	}
	return all, nil
}

// parseBusy sums up the first line of /proc/stat without idle and waiting times. It also leaves out guest times,
// which are included in user times.
func parseBusy(stat string) (int64, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat does not begin with the CPU's times")
	}
	sum := int64(0)
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += n
	}
	return sum, nil
}

// HasThread reports whether a process has a thread of that name.
func HasThread(pid int, name string) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	return err == nil && slices.ContainsFunc(tasks, func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.TrimSuffix(string(b), "\n") == name
	})
}
