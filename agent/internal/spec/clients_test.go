package spec_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// host has the sources of all mounts as directories.
type host struct{}

func (host) Node(string) (convert.Node, error)   { return convert.Node{Type: convert.Dir}, nil }
func (host) ShmBytes(path string) (int64, error) { return int64(len(path)) << 12, nil }

// TestClients: the guest accepts the converted bundles of podman, docker and containerd.
func TestClients(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../oci/convert/testdata/*.json")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := convert.Decode(data, convert.Options{
			ID: "c", Bundle: "/b", Host: host{}, Join: func(n convert.Namespaces) (*convert.Join, error) {
				if n.IPC.Kind != convert.ByPath && n.PID.Kind != convert.ByPath {
					return nil, nil
				}
				return &convert.Join{SandboxID: "pod", PID: agentv1.Namespace("first"), IPC: agentv1.Namespace("")}, nil
			},
		})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		raw, err := json.Marshal(plan.Guest)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Parse(raw)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		vm := provided(nil)
		vm.Volume = func(m containerv1.Mount) (string, error) { return "/volumes" + m.Destination, nil }
		vm.HasDevice = func(kind string, major, _ int64) bool { return kind == "b" || major < 11 }
		vm.Block = func(containerv1.Block) (major, minor uint32, err error) { return 254, 16, nil }
		err = s.Adjust(vm, false)
		if strings.HasSuffix(file, "/rc4.json") {
			// crun would drop a variable without a value silently.
			if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "process.env") {
				t.Errorf("%s: %v", file, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		config, err := s.Encode()
		if err != nil || strings.Contains(string(config), `"bulkhead.`) {
			t.Errorf("%s: %s, %v", file, config, err)
		}
	}
}
