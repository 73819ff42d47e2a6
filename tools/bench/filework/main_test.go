package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestWorks does each work once, except the works of other programs.
func TestWorks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, step := range []struct {
		verb string
		want int
	}{
		{"make", files}, {"walk", files + 11}, {"read", files},
		{"seqwrite", bigSize}, {"seqread", bigSize}, {"randwrite", pages * page}, {"randread", pages * page}, {"mmap", bigSize},
	} {
		said, err := one([]string{dir, step.verb})
		var n, ns int
		if _, scanned := fmt.Sscan(said, &n, &ns); err != nil || scanned != nil || n != step.want || ns <= 0 {
			t.Errorf("%s: %q, want %d: %v", step.verb, said, step.want, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "big")); err != nil || info.Size() != bigSize {
		t.Errorf("%v, %v", info, err)
	}
	for _, words := range [][]string{{}, {dir}, {dir, "sing"}, {"-drop", dir}} {
		if said, err := one(words); err == nil {
			t.Errorf("%q: %s", words, said)
		}
	}
}
