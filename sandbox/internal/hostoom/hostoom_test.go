package hostoom

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHappened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"v1":     "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		"v2":     "low 0\nhigh 0\nmax 7\noom 4\noom_kill 3\noom_group_kill 9\n",
		"vmstat": "nr_free_pages 1\noom_kill 3\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, ok := read(path)
		if n != 3 || !ok {
			t.Errorf("%s: %d, %v", name, n, ok)
		}
		if (Count{File: path, Before: 3}).Happened() || !(Count{File: path, Before: 2}).Happened() {
			t.Errorf("%s: wrong about what happened", name)
		}
	}
	if (Count{}).Happened() || (Count{File: dir + "/gone"}).Happened() {
		t.Error("a count that cannot be read says that it happened")
	}
	if c := Take(os.Getpid()); c.File == "" {
		t.Error("there is nothing to count by on this host")
	}
}
