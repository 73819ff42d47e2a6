package hostcgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// TestInherit: a new group gets its parent's processors, also if another process has just made the parent and not given it
// any yet.
func TestInherit(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	child := filepath.Join(top, "parent/child")
	for dir, value := range map[string]string{top: "0-1\n", filepath.Dir(child): "\n", child: "\n"} {
		fakeGroup(t, dir, map[string]string{"cpuset.cpus": value, "cpuset.mems": value})
	}
	if err := inherit(child); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(child), child} {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if text, err := os.ReadFile(filepath.Join(dir, file)); string(text) != "0-1" {
				t.Errorf("%s of %s is %q, %v", file, dir, text, err)
			}
		}
	}
}
