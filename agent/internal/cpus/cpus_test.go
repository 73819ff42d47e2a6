package cpus

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestSet uses the files of a VM with four CPUs. The first one cannot be taken offline.
func TestSet(t *testing.T) {
	for _, tc := range []struct {
		was  string // of CPUs 1 to 3
		want int
		is   string
		fail string
	}{
		{was: "000", want: 1, is: "000"},
		{was: "000", want: 3, is: "110"},
		{was: "111", want: 2, is: "100"},
		{was: "010", want: 4, is: "111"},
		{was: "000", want: 5, is: "111", fail: "the VM has 4"},
	} {
		dir := t.TempDir()
		file := func(n int) string { return filepath.Join(dir, "cpu"+strconv.Itoa(n), "online") }
		for n, state := range tc.was {
			if err := os.MkdirAll(filepath.Dir(file(n+1)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file(n+1), []byte(string(state)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := Set(dir, tc.want)
		if (err == nil) != (tc.fail == "") || err != nil && !strings.Contains(err.Error(), tc.fail) {
			t.Errorf("%d of %s: %v", tc.want, tc.was, err)
		}
		is := ""
		for n := range tc.was {
			state, err := os.ReadFile(file(n + 1))
			if err != nil {
				t.Fatal(err)
			}
			is += strings.TrimSpace(string(state))
		}
		if is != tc.is {
			t.Errorf("%d of %s: %s, not %s", tc.want, tc.was, is, tc.is)
		}
	}
}

// TestOne: a VM with a kernel that has one CPU and cannot take it offline.
func TestOne(t *testing.T) {
	if err := Set(t.TempDir(), 1); err != nil {
		t.Error(err)
	}
}
