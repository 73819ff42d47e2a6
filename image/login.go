package image

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/pkg/docker/config"
)

// Login checks credentials with a registry ("docker.io", "host:5000", or "host/repository") and stores them like
// podman, in auth.json or a credential helper, for later pulls. insecure is as in PullOptions. Errors: ErrUnauthorized,
// ErrUnavailable.
func Login(ctx context.Context, getenv Getenv, registry, username, password string, insecure bool) error {
	key, err := registryKey(registry)
	if err != nil {
		return fmt.Errorf("log in to %s: %w", registry, err)
	}
	sys := getenv.context("", nil)
	setInsecure(sys, insecure)
	host, _, _ := strings.Cut(key, "/")
	allowed, err := newReach(sys, host)
	if err != nil {
		return fmt.Errorf("log in to %s: read registries.conf: %w", registry, err)
	}
	allowed.limit(sys) // the password is sent to the registry's own choice of a token server
	if err := docker.CheckAuth(ctx, sys, username, password, host); err != nil {
		err = classify(err, host)
		if errors.Is(err, ErrUnauthorized) {
			err = &classError{ErrUnauthorized, err, "the registry refused the user name or the password"}
		}
		return fmt.Errorf("log in to %s: %w", registry, err)
	}
	if _, err := config.SetCredentials(sys, key, username, password); err != nil {
		return fmt.Errorf("store the credentials for %s: %w", registry, err)
	}
	return nil
}

// ErrNotLoggedIn is returned by Logout if there are no credentials.
var ErrNotLoggedIn = errdefs.ErrNotFound.WithMessage("not logged in")

// Logout removes the credentials for a registry; ErrNotLoggedIn if there are none.
func Logout(getenv Getenv, registry string) error {
	key, err := registryKey(registry)
	if err != nil {
		return fmt.Errorf("log out of %s: %w", registry, err)
	}
	err = config.RemoveAuthentication(getenv.context("", nil), key)
	if errors.Is(err, config.ErrNotLoggedIn) {
		err = ErrNotLoggedIn
	}
	if err != nil {
		return fmt.Errorf("log out of %s: %w", registry, err)
	}
	return nil
}

// registryKey returns a registry's key in auth.json.
func registryKey(registry string) (string, error) {
	key := strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://")
	key = strings.TrimSuffix(key, "/")
	if key == "" || strings.ContainsAny(key, " \t\n@") {
		return "", fmt.Errorf("%w: registry %.255q", ErrInvalid, registry)
	}
	return key, nil
}
