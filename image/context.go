package image

import (
	"os"
	"path/filepath"

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
		AuthFilePath:                authFile(),
		OCIAcceptUncompressedLayers: true,
	}
	if auth != nil {
		sys.DockerAuthConfig = &types.DockerAuthConfig{
			Username: auth.Username, Password: auth.Password, IdentityToken: auth.Token,
		}
	}
	return sys
}

// authFile is the auth.json that the environment names, as podman reads it;
// without one the library looks in its usual places.
func authFile() string {
	if path := os.Getenv("REGISTRY_AUTH_FILE"); path != "" {
		return path
	}
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		return filepath.Join(dir, "config.json")
	}
	return ""
}
