// Package deploy tests that the files of this directory match the programs.
package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/yaml"

	"github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/door/cri/config"
	nodeconfig "github.com/bulkhead-project/bulkhead/door/node/config"
	"github.com/bulkhead-project/bulkhead/engine/group"
)

// unit parses a systemd unit file into values by section and key. The values of repeated keys are joined.
func unit(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	values, section := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, assigned := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = line
		case !assigned || section == "" || strings.TrimSpace(key) != key:
			t.Errorf("%s: %q is neither a section nor an assignment in a section", path, line)
		default:
			values[section+key] = append(values[section+key], value)
		}
	}
	return values
}

// TestUnits: the command of each service exists, and pods outlive the service.
func TestUnits(t *testing.T) {
	t.Parallel()
	var c config.Config
	f := pflag.NewFlagSet("cri", pflag.ContinueOnError)
	f.String("config", "", "")
	c.Add(f)
	checkUnit(t, "cri", f, c.Check)
	var n nodeconfig.Config
	f = pflag.NewFlagSet("node", pflag.ContinueOnError)
	n.Add(f)
	checkUnit(t, "node", f, n.Check)
}

func checkUnit(t *testing.T, command string, flags *pflag.FlagSet, check func() error) {
	t.Helper()
	u := unit(t, "systemd/bulkhead-"+command+".service")
	for key, want := range map[string]string{
		"[Service]Type": "notify", "[Service]NotifyAccess": "main", "[Service]KillMode": "process", "[Service]Delegate": "yes",
		"[Service]OOMScoreAdjust": "-999", "[Service]Restart": "always", "[Install]WantedBy": "multi-user.target",
		"[Service]LimitCORE": "0", "[Service]NoNewPrivileges": "yes", "[Service]LockPersonality": "yes",
		"[Service]RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET",
	} {
		if !slices.Equal(u[key], []string{want}) {
			t.Errorf("%s: %q, want %q", key, u[key], want)
		}
	}
	for key := range u {
		// With these options, directories of running pods would be removed or hidden. Most create a mount
		// namespace.
		for _, prefix := range []string{"RuntimeDirectory", "Private", "Protect", "Read", "Temporary", "RestrictSUIDSGID", "MemoryDeny"} {
			if strings.HasPrefix(key, "[Service]"+prefix) {
				t.Errorf("%s is set", key)
			}
		}
	}
	if len(u["[Service]ExecStart"]) != 1 {
		t.Fatalf("commands %q", u["[Service]ExecStart"])
	}
	words := strings.Fields(u["[Service]ExecStart"][0])
	if filepath.Base(words[0]) != "bulkhead" || !filepath.IsAbs(words[0]) || len(words) < 2 || words[1] != command {
		t.Fatalf("command %q", words)
	}
	if err := flags.Parse(words[2:]); err != nil || flags.NArg() > 0 {
		t.Errorf("%q: %v", words, err)
	}
	if err := check(); err != nil {
		t.Error(err)
	}
}

// TestRuntimeClasses: each built-in handler has a RuntimeClass with the engine's overhead.
func TestRuntimeClasses(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("kubernetes/runtimeclass.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var class nodev1.RuntimeClass
		if err := yaml.UnmarshalStrict([]byte(document), &class); err != nil {
			t.Fatal(err)
		}
		if class.APIVersion != "node.k8s.io/v1" || class.Kind != "RuntimeClass" || class.Name != class.Handler {
			t.Errorf("%+v", class)
		}
		names = append(names, class.Handler)
		fixed, want := class.Overhead.PodFixed, group.Overhead()
		if fixed.Memory().Value() != want.Memory || fixed.Cpu().AsApproximateFloat64() != want.CPU || len(fixed) != 2 {
			t.Errorf("%s: overhead %v, want %+v", class.Name, fixed, want)
		}
	}
	if !slices.Equal(names, []string{cri.RuntimeHandler, cri.ColdHandler}) {
		t.Errorf("handlers %q", names)
	}
}
