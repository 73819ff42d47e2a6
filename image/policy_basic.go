//go:build !containers_image_openpgp

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"
)

// allowed is for builds without signature verification. It allows everything if policy.json does or is missing, and
// refuses everything if the file has any requirement.
func allowed(_ context.Context, _ *types.SystemContext, _ types.UnparsedImage) error {
	files := configfile.File{
		Name: "policy", Extension: "json", DoNotLoadDropInFiles: true,
		EnvironmentName: "CONTAINERS_POLICY_JSON", ErrorIfNotFound: true,
	}
	for item, err := range configfile.Read(&files) {
		if errors.Is(err, configfile.ErrConfigFileNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPolicy, err)
		}
		data, err := io.ReadAll(io.LimitReader(item.Reader, maxManifest))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPolicy, err)
		}
		if !acceptsAnything(data) {
			return fmt.Errorf("%w: this build cannot check the requirements of %s (build with -tags containers_image_openpgp)", ErrPolicy, item.Name)
		}
	}
	return nil
}

// acceptsAnything reports whether every requirement in a policy is the one
// that accepts everything.
func acceptsAnything(data []byte) bool {
	type requirements []struct {
		Type string `json:"type"`
	}
	var policy struct {
		Default    requirements                       `json:"default"`
		Transports map[string]map[string]requirements `json:"transports"`
	}
	if json.Unmarshal(data, &policy) != nil {
		return false
	}
	all := []requirements{policy.Default}
	for _, scopes := range policy.Transports {
		for _, r := range scopes {
			all = append(all, r)
		}
	}
	for _, list := range all {
		for _, r := range list {
			if r.Type != "insecureAcceptAnything" {
				return false
			}
		}
		if len(list) == 0 {
			return false
		}
	}
	return true
}
