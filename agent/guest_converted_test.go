package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// directories is a host with directories at all paths.
type directories struct{}

func (directories) Node(string) (convert.Node, error) { return convert.Node{Type: convert.Dir}, nil }
func (directories) ShmBytes(string) (int64, error)    { return 1 << 20, nil }

// testConverted runs the converted bundles of podman, docker and containerd in the guest, without their shares.
func testConverted(t *testing.T, tm *template) {
	g := tm.start(t)
	g.launch("first", spec("sleep", "1000"))
	files, err := filepath.Glob("../oci/convert/testdata/*.json")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if name == "rc4" {
			continue // its environment has a variable without a value
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := convert.Decode(data, convert.Options{ID: name, Bundle: "/b", Host: directories{}, Join: joinFirst})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p := plan.Guest.Process
		p.Args = []string{"/bin/sh", "-c", "id -u; cat /proc/self/oom_score_adj 2>/dev/null || echo 0"}
		p.Env, p.Terminal = nil, false
		plan.Guest.Linux.Seccomp = nil // shortened in testdata
		plan.Guest.Mounts = slices.DeleteFunc(plan.Guest.Mounts, func(m specs.Mount) bool {
			return m.Type == "bulkhead.share" || m.Type == "bulkhead.block"
		})
		encoded, err := json.Marshal(plan.Guest)
		if err != nil {
			t.Fatal(err)
		}
		err = g.tryCreate(name, nil, func(c *agentv1.Create) { c.Spec = encoded })
		if err == nil {
			err = g.Start(g.ctx(), agentv1.Process{Container: name})
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := string(raw(t, p.User.UID)) + "\n0\n"
		if score := p.OOMScoreAdj; score != nil {
			want = string(raw(t, p.User.UID)) + "\n" + string(raw(t, *score)) + "\n"
		}
		if got := g.read(agentv1.Process{Container: name}, "stdout"); got != want {
			t.Errorf("%s: %q, want %q; %q", name, got, want, g.read(agentv1.Process{Container: name}, "stderr"))
		}
	}
}

// joinFirst lets containers with the namespaces of others join the VM's first container.
func joinFirst(n convert.Namespaces) (*convert.Join, error) {
	if n.IPC.Kind != convert.ByPath && n.PID.Kind != convert.ByPath {
		return nil, nil
	}
	return &convert.Join{SandboxID: "first", PID: agentv1.Namespace("first")}, nil
}
