package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keeper is a pod that adds a line to a file in each of its emptyDirs, prints the number of lines, and keeps
// running.
const keeper = `apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  terminationGracePeriodSeconds: 0
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: small, emptyDir: {sizeLimit: 2Mi}}
  - {name: memory, emptyDir: {medium: Memory}}
  containers:
  - name: c
    image: IMAGE
    command:
    - sh
    - -c
    - |
      for dir in /disk /small /memory /root; do mkdir -p $dir; echo x >>$dir/file; wc -l <$dir/file; done
      head -c 15000000 /dev/zero >/big || exit 1
      sync
      echo up
      exec sleep 1000
    resources: {limits: {ephemeral-storage: 20Mi}}
    volumeMounts: [{name: disk, mountPath: /disk}, {name: small, mountPath: /small}, {name: memory, mountPath: /memory}]
`

// TestEmptyDirs: data in emptyDirs exists as long as the pod, also if its VMs are replaced. Data elsewhere or in
// memory does not.
func TestEmptyDirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(t, strings.ReplaceAll(keeper, "IMAGE", image), "run", "-d", "-q", "-")
	w.soon(t, `^1\n1\n1\n1\nup\n$`, "logs", "keeper")
	w.must(t, "", "exec", "keeper", "--", "sh", "-c", "echo unsynced >/disk/late")

	w.must(t, "", "stop", "keeper")
	w.must(t, "", "start", "keeper")
	w.soon(t, `^1\n1\n1\n1\nup\n2\n2\n1\n1\nup\n$`, "logs", "keeper")
	if got := w.must(t, "", "exec", "keeper", "--", "cat", "/disk/late"); got != "unsynced\n" {
		t.Errorf("data written just before the stop: %q", got)
	}

	// A new engine knows the disk's pod from its record.
	w.must(t, "", "stop", "keeper")
	w.shutdown(t)
	w.must(t, "", "start", "keeper")
	w.soon(t, `up\n3\n3\n1\n1\nup\n$`, "logs", "keeper")

	for _, p := range w.processes() {
		if p.qemu() != "" {
			if err := kill(p.pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.soon(t, `^4\n4\n1\n1\nup\n$`, "logs", "keeper")
	if c := w.run(t, "", "exec", "keeper", "--", "dd", "if=/dev/zero", "of=/small/big", "bs=1M", "count=3"); c.ProcessState.ExitCode() == 0 {
		t.Errorf("the limit of a kept emptyDir is gone: %v", c)
	}

	// A disk that no guest can mount is reported and kept.
	w.must(t, "", "stop", "keeper")
	disk := first(filepath.Join(w.roots().Sandboxes(), "*", "scratch.img"))
	if err := os.Truncate(disk, 10<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 10<<30); err != nil {
		t.Fatal(err)
	}
	c := w.run(t, "", "start", "keeper")
	if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), "no ext4 that can be mounted") {
		t.Errorf("with a damaged disk: %v", c)
	}
	if _, err := os.Stat(disk); err != nil {
		t.Errorf("the damaged disk is gone: %v", err)
	}
	w.must(t, "", "rm", "-f", "keeper")
}
