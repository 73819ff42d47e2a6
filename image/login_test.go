package image

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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
	if err := Login(testContext(t), os.Getenv, host, "u", "wrong"); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("wrong password: %v", err)
	}
	if err := Login(testContext(t), os.Getenv, host, "u", "p"); err != nil {
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
