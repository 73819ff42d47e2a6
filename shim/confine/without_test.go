package confine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// TestWithout: neither the engine's threads nor its programs regain the dropped capabilities. An ordinary user's engine
// starts too.
func TestWithout(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has capabilities")
	}
	path := program(t, "without")
	// Another user runs the program.
	if err := os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, user := range []uint32{0, 65534} {
		cmd := exec.CommandContext(t.Context(), path)
		if user != 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("user %d: %v: %s", user, err, out)
		}
		sets := 0
		for line := range strings.Lines(string(out)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			if !strings.HasPrefix(name, "Cap") || name == "CapBnd" && user != 0 {
				continue
			}
			sets++
			set, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range confine.NeverUsed {
				if set&(1<<c) != 0 {
					t.Errorf("user %d: %s has capability %d", user, name, c)
				}
			}
			if user == 0 && name == "CapEff" && set&(1<<unix.CAP_SYS_ADMIN) == 0 {
				t.Error("root's effective capabilities lack CAP_SYS_ADMIN")
			}
		}
		if sets < 8 {
			t.Errorf("user %d: %d sets are printed: %s", user, sets, out)
		}
	}
}
