package client

import (
	"context"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// TestUnusableDirectories: where no supervisor could work the error says what to set.
func TestUnusableDirectories(t *testing.T) {
	long := "/" + strings.Repeat("s", dirs.MaxState)
	for _, tc := range []struct {
		roots dirs.Roots
		want  string
	}{
		{dirs.Roots{Data: t.TempDir(), State: long}, "set BULKHEAD_STATE to a shorter path"},
		{dirs.Roots{Data: "/dev/null/data", State: "/nonexistent"}, "(set BULKHEAD_DATA and BULKHEAD_STATE to directories of your own)"},
	} {
		start := func(context.Context, dirs.Roots) error { t.Error("started"); return nil }
		if err := New(tc.roots, start).Call(t.Context(), "GET", "/v1/pods", nil, nil, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc.roots, err)
		}
	}
}
