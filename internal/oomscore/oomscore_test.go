package oomscore

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUnprotect(t *testing.T) {
	t.Parallel()
	for before, after := range map[string]string{"-999\n": "0", "-1\n": "0", "0\n": "0\n", "300\n": "300\n"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "oom_score_adj")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unprotect(dir); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != after {
			t.Errorf("%q became %q, %v", before, got, err)
		}
	}
	if err := Unprotect(os.Getpid()); err != nil {
		t.Error(err)
	}
	if err := unprotect(t.TempDir()); err == nil {
		t.Error("of no process")
	}
}
