package testnet

import (
	"fmt"
	"os"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/alone"
)

// Alone runs a package's tests in their own network and mount namespaces (package alone), and returns their exit code.
// TestMain calls it.
func Alone(m *testing.M) int {
	if err := alone.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
