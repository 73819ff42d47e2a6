// Package pss measures the memory of processes.
package pss

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Of returns the proportional memory share of a process, in bytes: its own pages, and its part of each shared page.
func Of(pid int) (int64, error) { return sum(pid, "Pss") }

// Private returns the memory of a process that no other process shares, in bytes.
func Private(pid int) (int64, error) { return sum(pid, "Private_Clean", "Private_Dirty") }

// Dirty returns the memory of a process that no other process can share, in bytes: without the pages of its program.
func Dirty(pid int) (int64, error) { return sum(pid, "Private_Dirty") }

// sum sums figures of a process.
func sum(pid int, names ...string) (all int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for _, name := range names {
		var n int64
		if err == nil {
			n, err = parse(string(b), name)
		}
		all += n
	}
	if err != nil {
		return 0, fmt.Errorf("weigh process %d: %w", pid, err)
	}
	return all, nil
}

// Parse returns the share in a text of the form of smaps_rollup, in bytes.
func Parse(rollup string) (int64, error) { return parse(rollup, "Pss") }

func parse(rollup, name string) (int64, error) {
	for line := range strings.Lines(rollup) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
			if unit != "kB" {
				return 0, fmt.Errorf("smaps_rollup counts in %q", unit)
			}
			kib, err := strconv.ParseInt(number, 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("smaps_rollup has no %s", name)
}
