package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// TestCRIRefuses: what the door cannot be told ends the command before the engine's program
// is looked for.
func TestCRIRefuses(t *testing.T) {
	t.Setenv("BULKHEAD_LIBEXEC", t.TempDir())
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte("log-level = 'loud'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		err  string
	}{
		"a file that is not there": {[]string{"--config=/no/such/file"}, "cri: configuration: "},
		"the file":                 {[]string{"--config", file}, `cri: log-level "loud" is none of`},
		"a flag":                   {[]string{"--config", file, "--log-level=info", "--listen=x"}, `cri: listen "x" is not`},
		"neither":                  {[]string{"--config", file, "--log-level=info"}, "bulkhead-engine"},
	} {
		cmd := CRI(&app.App{})
		cmd.SetArgs(tc.args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %s", name, err, tc.err)
		}
	}
}
