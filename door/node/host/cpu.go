package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPU returns the CPU time that the host's processors have worked since boot, in total.
func CPU() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read the CPU time: %w", err)
	}
	first, _, _ := strings.Cut(string(data), "\n")
	words := strings.Fields(first)
	if len(words) < 9 || words[0] != "cpu" {
		return 0, fmt.Errorf("read the CPU time: no cpu line in /proc/stat")
	}
	var ticks uint64
	for i, word := range words[1:9] {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time: %w", err)
		}
		if i != 3 && i != 4 { // idle and iowait
			ticks += n
		}
	}
	const hertz = 100 // USER_HZ of the kernel, on every architecture
	return time.Duration(ticks) * (time.Second / hertz), nil
}
