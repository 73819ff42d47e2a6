package client

import (
	"slices"
	"testing"
)

// TestShown: a secret of the client does not reach the unit, which every user can read.
func TestShown(t *testing.T) {
	got := shown([]string{"HOME=/root", "TOKEN=secret", "BULKHEAD_WARM=2", "XDG_RUNTIME_DIR=/run", ReadyFD + "=3", "PATHS=x"})
	if want := []string{"HOME=/root", "BULKHEAD_WARM=2", "XDG_RUNTIME_DIR=/run"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
