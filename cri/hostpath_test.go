package cri

import (
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestClientsPaths: a client of the CRI can name only allowed files of the host, and links in its directories lead to
// no others.
func TestClientsPaths(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	w := enginetest.New()
	o := testOptions(t, enginetest.Roots(t))
	o.HostPaths = []string{dir}
	s := fakeService(t, w, o)
	secret := filepath.Join(outside, "secret")
	link, bridge := filepath.Join(dir, "link"), filepath.Join(dir, "bridge")
	for _, err := range []error{os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, link), os.Symlink(outside, bridge)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, logs := range []string{outside, filepath.Join(dir, "..", filepath.Base(outside)), dir, bridge, filepath.Join(bridge, "logs")} {
		config := podConfig("p")
		config.LogDirectory = logs
		if _, err := s.RunPodSandbox(t.Context(), config, ""); err == nil {
			t.Errorf("log directory %s: accepted", logs)
		}
	}
	config := podConfig("p")
	config.LogDirectory = filepath.Join(dir, "logs")
	id, err := s.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "logs", "main.log")); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*runtimeapi.ContainerConfig){
		"log":    func(*runtimeapi.ContainerConfig) {},
		"hosts":  mount("/etc/hosts", secret),
		"linked": mount("/etc/hosts", link),
		"words":  mount("/dev/termination-log", secret),
		"volume": mount("/v", filepath.Join(outside, "kubernetes.io~secret", "v")),
		"bridge": mount("/v", filepath.Join(bridge, "kubernetes.io~secret", "v")),
	} {
		c := containerConfig("main", "true")
		if name != "log" {
			c.LogPath = ""
		}
		change(c)
		if _, err := s.CreateContainer(t.Context(), id, c, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "secret" {
		t.Errorf("the file changed to %q, %v", data, err)
	}
}

func mount(at, from string) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) {
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: at, HostPath: from}}
	}
}

// TestClientsAnnotations: a client's annotations do not steer the engine.
func TestClientsAnnotations(t *testing.T) {
	t.Parallel()
	config := podConfig("p")
	config.Annotations = map[string]string{
		"io.bulkhead.internal/network": "host-loopback", "io.bulkhead.internal/template": "off", "io.bulkhead.internal/accel": "tcg",
		"io.bulkhead.internal/scratch": "1",
	}
	got, err := podRequest(config, "", runtimev1.PodOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Network != "" || got.Cold || got.Accel != "" || got.ScratchBytes != 0 {
		t.Errorf("%+v", got)
	}
}
