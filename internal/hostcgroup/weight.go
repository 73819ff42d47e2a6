package hostcgroup

import (
	"os"
	"path/filepath"
)

// The files of a group's weight, the weight of an ordinary group (or of one process beside it), and the largest weight.
const (
	weightV1, ordinaryV1, mostV1 = "cpu.shares", 1024, 262_144
	weightV2, ordinaryV2, mostV2 = "cpu.weight", 100, 10_000
)

// weight returns the weight in the kernel's units, in which an ordinary group has the given one.
func (l Limits) weight(ordinary int64) int64 {
	if l.Weight <= 0 {
		return ordinary
	}
	return max(l.Weight*ordinary/100, 2)
}

// weigh gives an owner's directory the sum of its groups' weights. Without that, all pods of the owner would share the
// time of one process beside them. It skips directories that are gone or have no weight.
func weigh(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var groups int64
	for _, e := range entries {
		if e.IsDir() {
			groups++
		}
	}
	groups = max(groups, 1)
	for file, weight := range map[string]int64{
		weightV1: min(groups*ordinaryV1, mostV1), weightV2: min(groups*ordinaryV2, mostV2),
	} {
		if _, err := os.Lstat(filepath.Join(dir, file)); err == nil {
			_ = write(dir, file, decimal(weight)) // fails if its groups are being removed
		}
	}
}
