package containerd

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testdoc"
)

// documented: the session in docs/containerd.md works, line by line.
func documented(t *testing.T, n *node) {
	n.ctr(t, "", "image", "tag", "--force", image, "docker.io/library/busybox:latest")
	n.removeAtEnd(t, "two")
	programs := t.TempDir()
	if err := os.Symlink(n.release.ctr, filepath.Join(programs, "ctr")); err != nil {
		t.Fatal(err)
	}
	for _, command := range testdoc.Session(t, "containerd.md") {
		cmd := exec.CommandContext(testdeadline.Context(t, 20*time.Second), "sh", "-ec", command)
		cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"),
			"CONTAINERD_ADDRESS="+n.path("c.sock"), "CONTAINERD_NAMESPACE="+namespace)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s%v: %s", command, err, out)
		}
	}
}
