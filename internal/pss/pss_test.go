package pss

import (
	"os"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse("00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss:  99 kB\nPss:    12 kB\nPss_Dirty: 3 kB\n")
	if err != nil || got != 12<<10 {
		t.Errorf("%d, %v", got, err)
	}
	for _, bad := range []string{"", "Pss: 12 MB\n", "Pss: x kB\n"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is taken for a rollup", bad)
		}
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	if n, err := Of(os.Getpid()); err != nil || n < 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := Of(1 << 30); err == nil {
		t.Error("a process that is not there was weighed")
	}
}
