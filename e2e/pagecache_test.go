package e2e

import "testing"

// TestPageCache: a VM with a guest that uses all its memory for the page cache is not killed for lack of memory on
// the host. This holds for clones and forks.
func TestPageCache(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]func(*testing.T) *world{"clone": newWorld, "fork": newForkingWorld} {
		t.Run(name, func(t *testing.T) {
			w := w(t)
			w.memory = "256Mi" // the guest's kernel leaves 157 of it
			if name == "fork" {
				w.must(t, "", "run", "--rm", "-q", image, "true")
			}
			out := w.must(t, "", "run", "--rm", "-q", image, "sh", "-c",
				"dd if=/dev/zero of=/big bs=1M count=140 2>/dev/null && wc -c </big")
			if out != "146800640\n" {
				t.Errorf("it says %q", out)
			}
		})
	}
}
