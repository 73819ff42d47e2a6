package host

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// TestNodeRefuses: invalid settings end the command before it searches its program.
func TestNodeRefuses(t *testing.T) {
	t.Setenv("BULKHEAD_LIBEXEC", t.TempDir())
	for name, tc := range map[string]struct {
		args []string
		err  string
	}{
		"nothing":       {nil, "node: kubeconfig or manifests is required"},
		"a name":        {[]string{"--kubeconfig=f", "--node-name=No_Name"}, `node: node-name "No_Name"`},
		"an address":    {[]string{"--kubeconfig=f", "--node-ip=x"}, `node: node-ip "x" must be an IP address`},
		"a name server": {[]string{"--kubeconfig=f", "--cluster-dns=x"}, `node: cluster-dns "x"`},
		"a network":     {[]string{"--kubeconfig=f", "--network=x"}, `node: network "x"`},
		"a directory":   {[]string{"--kubeconfig=f", "--cni-conf-dir=x"}, `node: cni-conf-dir "x"`},
		"a port":        {[]string{"--kubeconfig=f", "--listen=x"}, `node: listen "x"`},
		"half a pair":   {[]string{"--kubeconfig=f", "--tls-cert-file=x"}, "node: tls-cert-file and"},
		"two certificates": {
			[]string{"--kubeconfig=f", "--tls-cert-file=x", "--tls-private-key-file=x", "--rotate-server-certificates"},
			"node: tls-cert-file",
		},
		"a number of pods": {[]string{"--kubeconfig=f", "--max-pods=0"}, "node: max-pods 0"},
		"a level":          {[]string{"--kubeconfig=f", "--log-level=x"}, `node: log-level "x"`},
		"a format":         {[]string{"--kubeconfig=f", "--log-format=x"}, `node: log-format "x"`},
		"an endpoint":      {[]string{"--kubeconfig=f", "--cri-endpoint=/x"}, `node: cri-endpoint "/x"`},
		"files alone":      {[]string{"--manifests=x"}, "bulkhead-node"},
		"all it needs":     {[]string{"--kubeconfig=f"}, "bulkhead-node"},
	} {
		cmd := Node(&app.App{})
		cmd.SetArgs(tc.args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %s", name, err, tc.err)
		}
	}
}
