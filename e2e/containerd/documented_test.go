package containerd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// documented: the session in docs/containerd.md works, line by line.
func documented(t *testing.T, n *node) {
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/containerd.md"))
	if err != nil {
		t.Fatal(err)
	}
	n.ctr(t, "", "image", "tag", "--force", image, "docker.io/library/busybox:latest")
	n.removeAtEnd(t, "two")
	programs := t.TempDir()
	if err := os.Symlink(n.release.ctr, filepath.Join(programs, "ctr")); err != nil {
		t.Fatal(err)
	}
	_, session, _ := strings.Cut(string(text), "\n## A session\n")
	session, _, _ = strings.Cut(session, "\n## ")
	typed := 0
	for line := range strings.Lines(session) {
		line, found := strings.CutPrefix(line, "    ")
		if !found {
			continue
		}
		typed++
		cmd := exec.CommandContext(testdeadline.Context(t, 20*time.Second), "sh", "-ec", line)
		cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"),
			"CONTAINERD_ADDRESS="+n.path("c.sock"), "CONTAINERD_NAMESPACE="+namespace)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s%v: %s", line, err, out)
		}
	}
	if typed < 5 {
		t.Errorf("the document has %d lines to type", typed)
	}
}
