package procs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bulkhead-project/bulkhead/internal/pss"
)

// Weight is the proportional set size of a VM's process and its parts, in bytes.
type Weight struct {
	PSS   int64
	Guest int64 // the guest's memory
	Code  int64 // translated code, under emulation
}

// Weigh measures a VM's process.
func Weigh(pid int) (Weight, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return Weight{}, fmt.Errorf("weigh process %d: %w", pid, err)
	}
	w, err := parseMaps(string(b))
	if err != nil {
		return Weight{}, fmt.Errorf("weigh process %d: %w", pid, err)
	}
	return w, nil
}

// parseMaps parses smaps. Each mapping has a line "from-to rwxp offset device inode [name]", then its figures. The
// guest's memory is a memory file. Memory that is both writable and executable is translated code.
func parseMaps(maps string) (Weight, error) {
	var w Weight
	var guest, code bool
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) >= 5 && !strings.HasSuffix(fields[0], ":") {
			guest = len(fields) > 5 && strings.HasPrefix(fields[5], "/memfd:")
			code = strings.HasPrefix(fields[1], "rwx")
			continue
		}
		if !strings.HasPrefix(line, "Pss:") {
			continue
		}
		n, err := pss.Parse(line)
		if err != nil {
			return Weight{}, err
		}
		w.PSS += n
		switch {
		case guest:
			w.Guest += n
		case code:
			w.Code += n
		}
	}
	if w.PSS == 0 {
		return Weight{}, errors.New("smaps has no Pss")
	}
	return w, nil
}

// HeldMemory returns the size in bytes of the memory files (memfd) that a process holds open, mapped or not. PSS
// counts only mapped memory.
func HeldMemory(pid int) (int64, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("weigh the memory files of process %d: %w", pid, err)
	}
	seen := map[uint64]bool{}
	sum := int64(0)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:") {
			continue
		}
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		sum += st.Blocks * 512
	}
	return sum, nil
}
