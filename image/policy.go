//go:build containers_image_openpgp

package image

import (
	"context"
	"errors"
	"fmt"

	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"
)

// allowed returns ErrPolicy unless policy.json allows the image. Without that file, everything is allowed.
func allowed(ctx context.Context, sys *types.SystemContext, img types.UnparsedImage) (err error) {
	policy, err := signature.DefaultPolicy(sys)
	if errors.Is(err, configfile.ErrConfigFileNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	pc, err := signature.NewPolicyContext(policy)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	defer func() { err = errors.Join(err, pc.Destroy()) }()
	ok, err := pc.IsRunningImageAllowed(ctx, img)
	var refused signature.PolicyRequirementError
	if errors.As(err, &refused) || err == nil && !ok {
		return fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	return err
}
