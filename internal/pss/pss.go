// Package pss measures the memory of processes.
package pss

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Of returns the proportional memory share of a process, in bytes: its own pages, and its part of each shared page.
func Of(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("weigh process %d: %w", pid, err)
	}
	n, err := Parse(string(b))
	if err != nil {
		return 0, fmt.Errorf("weigh process %d: %w", pid, err)
	}
	return n, nil
}

// Parse returns the share in a text of the form of smaps_rollup, in bytes.
func Parse(rollup string) (int64, error) {
	for line := range strings.Lines(rollup) {
		if value, ok := strings.CutPrefix(line, "Pss:"); ok {
			number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
			if unit != "kB" {
				return 0, fmt.Errorf("smaps_rollup counts in %q", unit)
			}
			kib, err := strconv.ParseInt(number, 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("smaps_rollup has no Pss")
}
