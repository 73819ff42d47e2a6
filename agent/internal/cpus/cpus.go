// Package cpus brings a machine's CPUs online and takes them away.
package cpus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Dir is where the kernel has them.
const Dir = "/sys/devices/system/cpu"

// Set has the first want CPUs of dir be online and no other. What runs sees it at once. The
// first of all is always online.
func Set(dir string, want int) error {
	for n := 1; ; n++ {
		at := filepath.Join(dir, "cpu"+strconv.Itoa(n), "online")
		is, err := os.ReadFile(at)
		if errors.Is(err, fs.ErrNotExist) {
			if n < want {
				return fmt.Errorf("%d CPUs online: the VM has %d", want, n)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("CPU %d: %w", n, err)
		}
		state := "0"
		if n < want {
			state = "1"
		}
		if strings.TrimSpace(string(is)) == state {
			continue // the kernel refuses what is so already
		}
		if err := os.WriteFile(at, []byte(state), 0); err != nil {
			return fmt.Errorf("CPU %d online %s: %w", n, state, err)
		}
	}
}
