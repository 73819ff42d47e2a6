package confine_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// TestConfined runs a confined program (pure Go, like the shim) and checks what it can do.
func TestConfined(t *testing.T) {
	t.Parallel()
	inside, outside := t.TempDir(), file(t, "secret")
	passed, readable := file(t, "kernel"), file(t, "library")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.CommandContext(t.Context(), program(t, "confined"), inside, outside, passed, l.Addr().String(), readable)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	got := results(string(out))
	if got["clone3"] != unix.ENOSYS.Error() {
		t.Errorf("clone3: %s", got["clone3"])
	}
	walls(t, got, "truncation, TCP")
	if got["sealed waits"] != "true" {
		t.Errorf("the child ended: %s", got["sealed waits"])
	}
	judge(t, got, "write inside", "rename inside", "read passed", "exec",
		"seal", "sealed accepts", "sealed writes to a connection of before", "sealed opens its VM", "sealed kills its VM")
	if t.Failed() {
		t.Logf("\n%s", out)
	}
}

// program builds one of the programs beside this test, or finds it in BULKHEAD_TEST_PROGRAMS.
func program(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("BULKHEAD_TEST_PROGRAMS"); dir != "" {
		return filepath.Join(dir, name)
	}
	path := filepath.Join(t.TempDir(), name)
	build := testgo.Command(t.Context(), "build", "-o", path, "./testdata/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// results parses the lines that a program has printed. A repeated attempt counts as successful if it succeeded once.
func results(out string) map[string]string {
	got := map[string]string{}
	for line := range strings.Lines(out) {
		what, result, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if got[what] != "<nil>" {
			got[what] = result
		}
	}
	return got
}

// walls checks the reported restrictions: all are in force, or Landlock has no rule for gone.
func walls(t *testing.T, got map[string]string, gone string) {
	t.Helper()
	told := got["walls"]
	delete(got, "walls")
	err := confine.Landlock()
	switch {
	case err == nil && told != "<nil>":
		t.Errorf("walls: %s", told)
	case err != nil && !strings.Contains(told, "has no rule for "+gone+", which"):
		t.Errorf("walls: %s, but the kernel reports: %v", told, err)
	}
}

// judge checks that exactly these attempts have succeeded.
func judge(t *testing.T, got map[string]string, works ...string) {
	t.Helper()
	for _, what := range append(works, "end") {
		if got[what] != "<nil>" {
			t.Errorf("%s: %q", what, got[what])
		}
	}
	for what, result := range got {
		if result == "<nil>" && what != "end" && !slices.Contains(works, what) {
			t.Errorf("%s works, and should not", what)
		}
	}
}

// TestLandlockOfTheGuest runs in the guest, with a kernel that has a part of Landlock.
func TestLandlockOfTheGuest(t *testing.T) {
	if os.Getpid() != 1 {
		t.Skip("runs only in the guest of TestOlderKernel")
	}
	if err := confine.Landlock(); !errors.Is(err, confine.ErrPartial) {
		t.Errorf("the guest's kernel: %v", err)
	}
}
