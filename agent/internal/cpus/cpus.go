// Package cpus brings a VM's CPUs online and offline.
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

// Dir is the kernel's directory of CPUs.
const Dir = "/sys/devices/system/cpu"

// Set brings the first want CPUs of dir online and all others offline. The first CPU is always online.
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
			continue // the kernel refuses an unchanged value
		}
		if err := os.WriteFile(at, []byte(state), 0); err != nil {
			return fmt.Errorf("CPU %d online %s: %w", n, state, err)
		}
	}
}
