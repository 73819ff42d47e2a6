package confine_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRefused: a restriction that the kernel supports and that fails is an error, and nothing is started without it.
// One that the kernel lacks is reported.
func TestRefused(t *testing.T) {
	t.Parallel()
	path := program(t, "refused")
	for _, test := range []struct {
		name         string
		call         int
		errno        unix.Errno
		apply, start string // what the errors name
		seal         string
		missing      string
		started      bool
	}{
		{
			name: "no filter", call: unix.SYS_SECCOMP, errno: unix.EPERM,
			apply: "seccomp: ", start: "seccomp: ", seal: "operation not permitted",
		},
		{
			name: "no list of files", call: unix.SYS_LANDLOCK_RESTRICT_SELF, errno: unix.E2BIG,
			apply: "landlock: restrict", start: "landlock: restrict",
		},
		{name: "capabilities", call: unix.SYS_CAPSET, errno: unix.EPERM, apply: "capabilities: capset", started: true},
		{name: "no Landlock", call: unix.SYS_LANDLOCK_CREATE_RULESET, errno: unix.ENOSYS, missing: "the kernel lacks Landlock", started: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), path, strconv.Itoa(test.call), strconv.Itoa(int(test.errno))).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := results(string(out))
			for what, want := range map[string]string{
				"apply": test.apply, "start": test.start, "seal": test.seal, "missing": test.missing, "started": strconv.FormatBool(test.started),
				"none": strconv.FormatBool(test.missing != ""),
			} {
				if want == "" && got[what] != "<nil>" || !strings.Contains(got[what], want) {
					t.Errorf("%s: %q", what, got[what])
				}
			}
		})
	}
}
