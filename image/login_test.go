package image

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestLogin(t *testing.T) {
	auth := filepath.Join(t.TempDir(), "auth.json")
	t.Setenv("REGISTRY_AUTH_FILE", auth)
	host := startRegistry(t, basicAuth)
	img := imageOf(t, tarOf(t, file("a", "b")))
	push(t, host+"/demo:1", img, remote.WithAuth(&authn.Basic{Username: "u", Password: "p"}))
	s, _ := openStore(t, "run")
	if err := Login(testContext(t), os.Getenv, host, "u", "wrong", false); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("wrong password: %v", err)
	}
	if err := Login(testContext(t), os.Getenv, host, "u", "p", false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{}); err != nil {
		t.Error(err)
	}
	var kept struct{ Auths map[string]any }
	data, err := os.ReadFile(auth)
	if err != nil || json.Unmarshal(data, &kept) != nil || kept.Auths[host] == nil {
		t.Errorf("auth.json: %s, %v", data, err)
	}
	if err := Logout(os.Getenv, host); err != nil {
		t.Error(err)
	}
	if err := Logout(os.Getenv, host); !errors.Is(err, ErrNotLoggedIn) {
		t.Errorf("second logout: %v", err)
	}
	if _, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{}); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("after logout: %v", err)
	}
}

// TestRegistryKey: all spellings of a registry have one key, and an invalid name is refused before any request.
func TestRegistryKey(t *testing.T) {
	for text, want := range map[string]string{
		"reg.test": "reg.test", "https://reg.test/": "reg.test", "http://reg.test:5000": "reg.test:5000", "reg.test/team": "reg.test/team",
		"": "", "https://": "", "/": "", "a b": "", "user@reg.test": "",
	} {
		if got, err := registryKey(text); got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

// TestAuthFile: credentials lie where podman keeps them, then where docker does.
func TestAuthFile(t *testing.T) {
	for _, tc := range []struct{ podman, docker, want string }{
		{"", "", ""}, {"/a.json", "", "/a.json"}, {"", "/d", "/d/config.json"}, {"/a.json", "/d", "/a.json"},
	} {
		env := Getenv(func(name string) string {
			return map[string]string{"REGISTRY_AUTH_FILE": tc.podman, "DOCKER_CONFIG": tc.docker}[name]
		})
		if got := env.authFile(); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

// TestInsecure: a registry with plain HTTP is refused with a hint, unless the caller allows it.
func TestInsecure(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "registries.conf")
	if err := os.WriteFile(conf, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	auth := filepath.Join(t.TempDir(), "auth.json")
	env := func(name string) string {
		return map[string]string{"CONTAINERS_REGISTRIES_CONF": conf, "REGISTRY_AUTH_FILE": auth}[name]
	}
	host := startRegistry(t, basicAuth)
	push(t, host+"/demo:1", imageOf(t, tarOf(t, file("a", "b"))), remote.WithAuth(&authn.Basic{Username: "u", Password: "p"}))
	s, _ := openStore(t, "run")
	s = s.With(env)
	hint := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "--tls-verify=false") {
			t.Errorf("%s: %v", what, err)
		}
	}
	hint("log in", Login(testContext(t), env, host, "u", "p", false))
	if err := Login(testContext(t), env, host, "u", "p", true); err != nil {
		t.Errorf("log in all the same: %v", err)
	}
	_, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
	hint("pull", err)
	if _, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{Insecure: true}); err != nil {
		t.Errorf("pull all the same: %v", err)
	}
}
