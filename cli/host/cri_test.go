package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/check"
	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// TestCRIRefuses: invalid settings end the command before it searches the engine's program.
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
		"the file":                 {[]string{"--config", file}, `cri: log-level "loud" must be`},
		"a flag":                   {[]string{"--config", file, "--log-level=info", "--listen=x"}, `cri: listen "x" must be`},
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

// TestNode: the check uses the settings of the configuration file.
func TestNode(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.toml")
	for text, want := range map[string]check.CRI{
		"": {
			Socket: "/run/bulkhead/cri.sock", Kubelet: "/var/lib/kubelet", CNIConf: "/etc/cni/net.d",
			CNIBin: []string{"/opt/cni/bin", "/usr/lib/cni"},
		},
		"network = 'user'\nlisten = 'unix:///s'": {Socket: "/s", Kubelet: "/var/lib/kubelet"},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := node(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	if err := os.WriteFile(file, []byte("listen = 'x'"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := node(file); err == nil {
		t.Error("an invalid file is accepted")
	}
}
