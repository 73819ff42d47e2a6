package convert

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/oci"
)

// world is a Host for tests: directories, unless a path is listed.
type world map[string]Node

func (w world) Node(path string) (Node, error) {
	if strings.Contains(path, "missing") {
		return Node{}, &os.PathError{Op: "stat", Path: path, Err: os.ErrNotExist}
	}
	if n, ok := w[path]; ok {
		return n, nil
	}
	return Node{Type: Dir}, nil
}

func (world) ShmBytes(path string) (int64, error) {
	if strings.HasSuffix(path, "/shm") {
		return 65536000, nil
	}
	return 0, nil
}

const simple = `{"ociVersion":"1.0.2","process":{"args":["true"],"cwd":"/"},"root":{"path":"rootfs"},
	"linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"ipc"},{"type":"uts"},{"type":"mount"}]}}`

// with returns the simple configuration with more fields.
func with(t testing.TB, fields string) []byte {
	t.Helper()
	var top, more map[string]any
	for text, to := range map[string]*map[string]any{simple: &top, "{" + fields + "}": &more} {
		if err := json.Unmarshal([]byte(text), to); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	var merge func(into, from map[string]any)
	merge = func(into, from map[string]any) {
		for key, value := range from {
			inner, both := into[key].(map[string]any)
			add, ok := value.(map[string]any)
			if both && ok {
				merge(inner, add)
				continue
			}
			into[key] = value
		}
	}
	merge(top, more)
	data, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func defaults() Options { return Options{ID: "c1", Bundle: "/run/c1", Host: world{}} }

// plan converts the simple configuration with more fields.
func plan(t *testing.T, fields string) *Plan {
	t.Helper()
	p, err := Decode(with(t, fields), defaults())
	if err != nil {
		t.Fatalf("%s: %v", fields, err)
	}
	return p
}

func TestSimpleBundle(t *testing.T) {
	p := plan(t, `"mounts":[{"destination":"/proc","type":"proc"},
		{"destination":"/srv","type":"bind","source":"data","options":["rbind","ro"]}]`)
	if len(p.Trees) != 2 || p.Trees[0].Source != "/run/c1/rootfs" || p.Trees[1].Source != "/run/c1/data" {
		t.Errorf("trees %+v", p.Trees)
	}
	if m := p.Guest.Mounts[1]; m.Source != "/1" || m.Type != "bulkhead.share" || strings.Join(m.Options, ",") != "ro,rprivate" {
		t.Errorf("mount %+v", m)
	}
	if p.Kind != oci.Single || p.SandboxID != "c1" || len(p.Ignored) > 0 {
		t.Errorf("%+v", p)
	}
	if _, err := Decode([]byte("{"), defaults()); !errors.Is(err, oci.ErrInvalid) {
		t.Error(err)
	}
}
