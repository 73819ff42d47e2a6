package api

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestEnvironment(t *testing.T) {
	for _, name := range append(append([]string{}, proxies...), files...) {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("https_proxy", "http://user:p%40ss\x7f&=@proxy.test:3128\n")
	t.Setenv("REGISTRY_AUTH_FILE", "auth.json")
	t.Setenv("CONTAINERS_REGISTRIES_CONF", "/etc/r.conf")
	want := Environment{
		"https_proxy": "http://user:p%40ss\x7f&=@proxy.test:3128\n", "REGISTRY_AUTH_FILE": filepath.Join(dir, "auth.json"),
		"CONTAINERS_REGISTRIES_CONF": "/etc/r.conf",
	}
	got, err := ParseEnvironment(ReadEnvironment().Encode())
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range ReadEnvironment().Encode() {
		if c < ' ' || c > '~' {
			t.Errorf("%q is not for a header", c)
		}
	}
	if got, err := TakeEnvironment(); err != nil || !maps.Equal(got, want) {
		t.Errorf("taken: %v, %v", got, err)
	}
	if os.Getenv("https_proxy")+os.Getenv("REGISTRY_AUTH_FILE") != "" {
		t.Error("it is still there")
	}
}
