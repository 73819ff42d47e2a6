package bootstrap

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGroupOf(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct{ config, want string }{
		"no annotations":      {`{"ociVersion":"1.2.0"}`, "c1"},
		"a pod's container":   {`{"annotations":{"io.kubernetes.cri.sandbox-id":"s1"}}`, "s1"},
		"a group":             {`{"annotations":{"io.containerd.runc.v2.group":"g","io.kubernetes.cri.sandbox-id":"s1"}}`, "g"},
		"an empty annotation": {`{"annotations":{"io.containerd.runc.v2.group":""}}`, "c1"},
	} {
		path := filepath.Join(dir, "config.json")
		if err := os.WriteFile(path, []byte(test.config), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := GroupOf(path, "c1"); err != nil || got != test.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, test.want)
		}
	}
	if got, err := GroupOf(filepath.Join(dir, "missing"), "s2"); err != nil || got != "s2" {
		t.Errorf("a sandbox: got %q, %v, want its own id", got, err)
	}
	for _, bad := range []string{`{`, `[]`, `{"annotations":{"io.kubernetes.cri.sandbox-id":"../x"}}`} {
		path := filepath.Join(dir, "config.json")
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := GroupOf(path, "c1"); err == nil {
			t.Errorf("%s: got %q, want an error", bad, got)
		}
	}
}
