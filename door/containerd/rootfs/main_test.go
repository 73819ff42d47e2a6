package rootfs

import (
	"os"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
)

// The tests mount in a mount namespace of their own.
func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }
