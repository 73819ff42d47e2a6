package run

import (
	"fmt"
	"strconv"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
)

// memoryOf makes a Pod's quantity of --memory.
func memoryOf(typed string) (string, error) {
	quantity, err := text.Quantity(typed)
	if err != nil {
		return "", fmt.Errorf("--memory %w", err)
	}
	return quantity, nil
}

// cpusOf makes a Pod's quantity of --cpus.
func cpusOf(text string) (string, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0.001 && n <= 1024) {
		return "", fmt.Errorf("--cpus %q: give a number of processors, as 1.5", text)
	}
	return strconv.Itoa(int(n*1000+0.5)) + "m", nil
}
