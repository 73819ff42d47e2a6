package convert

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

var update = flag.Bool("update", false, "write the plans in testdata")

// clients is a Host with the files of the bundles in testdata.
type clients struct{ world }

func (c clients) Node(path string) (Node, error) {
	switch filepath.Base(path) {
	case "hosts", "etc-hosts", "hostname", "resolv.conf", ".containerenv", "docker-init":
		return Node{Type: Regular, Mode: 0o644}, nil
	}
	return c.world.Node(path)
}

// TestClients converts the bundles in testdata. Those of podman, docker and ctr are as these clients wrote them, with
// shorter lists.
func TestClients(t *testing.T) {
	all, err := filepath.Glob("testdata/*.json")
	if err != nil || len(all) < 15 {
		t.Fatalf("%d files, %v", len(all), err)
	}
	for _, file := range all {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Decode(data, Options{ID: "c1", Bundle: "/run/c1", Host: clients{}, Join: func(n Namespaces) (*Join, error) {
				if !strings.HasPrefix(n.Network.Path, "/proc/1234/") && n.PID.Path == "" {
					return nil, nil
				}
				return &Join{SandboxID: "5a", PID: agentv1.Namespace("5a")}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(p, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			golden := "testdata/" + name + ".plan"
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); diff != "" {
				t.Errorf("go test -update writes it (-want +got):\n%s", diff)
			}
		})
	}
}
