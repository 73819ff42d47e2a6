package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstallImage installs a node from the image of deploy/kubernetes/install.yaml. The node's root is a directory
// of the test. The programs must be there and run.
func TestInstallImage(t *testing.T) {
	t.Parallel()
	w := newForkingWorld(t)
	archive, err := filepath.Abs(filepath.Join("..", "build", "images", "install.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(archive); err != nil {
		t.Fatalf("%v (make test makes it)", err)
	}
	w.must(t, "", "image", "load", "docker-archive:"+archive, "localhost/bulkhead-install:test")
	host := filepath.Join(t.TempDir(), "host")
	if err := os.MkdirAll(filepath.Join(host, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out := w.must(t, "", "run", "--rm", "-v", host+":/host",
			"-e", "SERVICE=none", "-e", "PACKAGES=no", "-e", "WAIT=no", "localhost/bulkhead-install:test")
		if out != "install: Bulkhead is in /usr/local\n" {
			t.Errorf("it says %q", out)
		}
	}
	for installed, from := range map[string]string{
		"bin/bulkhead": "../bin/bulkhead", "libexec/bulkhead/bulkhead-engine": "../bin/bulkhead-engine",
		"share/bulkhead/guest/initrd": "../bin/guest/initrd", "share/bulkhead/setup": "../hack/setup",
	} {
		got, err := os.ReadFile(filepath.Join(host, "usr/local", installed))
		want, wantErr := os.ReadFile(from)
		if err != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not %s: %v, %v", installed, from, err, wantErr)
		}
	}
	out, err := exec.Command(filepath.Join(host, "usr/local/bin/bulkhead"), "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "bulkhead") {
		t.Errorf("version: %v: %s", err, out)
	}
}
