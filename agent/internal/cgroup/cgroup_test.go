package cgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseValues(t *testing.T) {
	t.Parallel()
	got := parseValues("anon 4096\nfile 0\nbroken\nnegative -1\nlast 18446744073709551615")
	if diff := cmp.Diff(map[string]uint64{"anon": 4096, "file": 0, "last": 1<<64 - 1}, got); diff != "" {
		t.Error(diff)
	}
}
