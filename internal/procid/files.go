package procid

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Files returns the descriptor numbers of a file in the process.
func (id ID) Files(f *os.File) ([]int, error) {
	want, err := f.Stat()
	if err != nil {
		return nil, err
	}
	dir := fmt.Sprintf("/proc/%d/fd", id.PID)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("files of process %d: %w", id.PID, err)
	}
	var numbers []int
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil || !os.SameFile(info, want) {
			continue
		}
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	if !id.Alive() {
		return nil, fmt.Errorf("files of process %d: %w", id.PID, ErrGone)
	}
	return numbers, nil
}
