package confine_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConfined runs a confined program (pure Go, as the shim is) and looks at
// what it could do.
func TestConfined(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "confined")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/confined")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	inside, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	passed := filepath.Join(t.TempDir(), "kernel")
	for _, path := range []string{outside, passed} {
		if err := os.WriteFile(path, []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := exec.CommandContext(t.Context(), program, inside, outside, passed, l.Addr().String()).CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "landlock: the kernel lacks it") {
		t.Skipf("this kernel has no Landlock:\n%s", out)
	}
	works := []string{"confined", "write inside", "rename inside", "read passed", "exec"}
	fails := []string{
		"thread reads outside", "read outside", "write outside", "exec reads outside",
		"connect", "mount", "unshare", "user namespace", "ptrace", "chown",
	}
	got := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		what, result, _ := strings.Cut(strings.TrimSpace(line), ": ")
		got[what] = append(got[what], result)
	}
	if !slices.Equal(got["clone3"], []string{unix.ENOSYS.Error()}) {
		t.Errorf("clone3: %q", got["clone3"])
	}
	for _, what := range works {
		for _, result := range append(got[what], missing(got[what])...) {
			if result != "<nil>" {
				t.Errorf("%s: %s", what, result)
			}
		}
	}
	for _, what := range fails {
		for _, result := range append(got[what], missing(got[what])...) {
			if result == "<nil>" || result == "" {
				t.Errorf("%s: %q, and should fail", what, result)
			}
		}
	}
	if t.Failed() {
		t.Logf("\n%s", out)
	}
}

// missing makes a line that was not printed fail both lists.
func missing(results []string) []string {
	if len(results) == 0 {
		return []string{""}
	}
	return nil
}
