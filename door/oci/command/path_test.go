package command

import (
	"os"
	"testing"
)

// TestCompletePath: a command without a path of programs gets the usual one.
func TestCompletePath(t *testing.T) {
	for path, want := range map[string]string{"": usualPath, "/opt/bin": "/opt/bin"} {
		t.Setenv("PATH", path)
		if err := completePath(); err != nil || os.Getenv("PATH") != want {
			t.Errorf("%q: %q, %v, want %q", path, os.Getenv("PATH"), err, want)
		}
	}
}
