package image

import (
	"go.podman.io/image/v5/types"
)

// systemContext configures the library: where its large temporary files go
// (they end with the stage), and credentials instead of auth.json's.
func systemContext(tmp string, auth *Auth) *types.SystemContext {
	sys := &types.SystemContext{
		OSChoice:                    platformOS,
		ArchitectureChoice:          platformArch,
		BigFilesTemporaryDir:        tmp,
		DockerRegistryUserAgent:     userAgent,
		OCIAcceptUncompressedLayers: true,
	}
	if auth != nil {
		sys.DockerAuthConfig = &types.DockerAuthConfig{
			Username: auth.Username, Password: auth.Password, IdentityToken: auth.Token,
		}
	}
	return sys
}
