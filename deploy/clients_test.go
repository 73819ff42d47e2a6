package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/BurntSushi/toml"
)

// TestClients: the snippets for podman, docker and containerd name the installed programs, also below another prefix.
func TestClients(t *testing.T) {
	t.Parallel()
	var podman struct {
		Engine struct {
			JSON     []string            `toml:"runtime_supports_json"`
			Runtimes map[string][]string `toml:"runtimes"`
		} `toml:"engine"`
	}
	var docker struct {
		Runtimes map[string]struct {
			Path string `json:"path"`
		} `json:"runtimes"`
	}
	type plugins struct {
		Plugins map[string]struct {
			Containerd struct {
				Runtimes map[string]struct {
					Type string `toml:"runtime_type"`
				} `toml:"runtimes"`
			} `toml:"containerd"`
		} `toml:"plugins"`
	}
	var containerd, containerd2 plugins
	top, root := tree(t), t.TempDir()
	for _, name := range []string{"containers.conf", "daemon.json", "containerd.toml", "containerd-2.toml"} {
		copyFile(t, filepath.Join("clients", name), filepath.Join(top, "deploy/clients", name))
	}
	in(t, top, "hack/install", "install", "/opt/b", root)
	for name, decode := range map[string]func([]byte) error{
		"containers.conf":   func(text []byte) error { return toml.Unmarshal(text, &podman) },
		"containerd.toml":   func(text []byte) error { return toml.Unmarshal(text, &containerd) },
		"containerd-2.toml": func(text []byte) error { return toml.Unmarshal(text, &containerd2) },
		"daemon.json":       func(text []byte) error { return json.Unmarshal(text, &docker) },
	} {
		text, err := os.ReadFile(filepath.Join(root, "opt/b/share/doc/bulkhead/examples", name))
		if err == nil {
			err = decode(text)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	const want = "/opt/b/bin/bulkhead-oci"
	if got := podman.Engine.Runtimes["bulkhead-oci"]; !slices.Equal(got, []string{want}) {
		t.Errorf("podman's runtime: got %q, want %q", got, want)
	}
	if !slices.Contains(podman.Engine.JSON, "bulkhead-oci") {
		t.Errorf("runtime_supports_json: got %q, want it with bulkhead-oci", podman.Engine.JSON)
	}
	for name, p := range map[string]plugins{"io.containerd.grpc.v1.cri": containerd, "io.containerd.cri.v1.runtime": containerd2} {
		got := p.Plugins[name].Containerd.Runtimes["bulkhead"].Type
		if got != "io.containerd.bulkhead.v2" { // of the program containerd-shim-bulkhead-v2
			t.Errorf("containerd's runtime type in %s: got %q", name, got)
		}
	}
	if got := docker.Runtimes["bulkhead"].Path; got != want {
		t.Errorf("docker's runtime: got %q, want %q", got, want)
	}
}
