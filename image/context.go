package image

import (
	"path/filepath"

	"go.podman.io/image/v5/types"
	"golang.org/x/net/http/httpproxy"
)

// The platform of all guests.
const (
	platformOS   = "linux"
	platformArch = "amd64"
)

// userAgent is the name that registries see.
const userAgent = "bulkhead"

// Getenv returns the value of an environment variable, "" if it is not set. The variables are podman's: they configure
// access to registries and credentials. Files' paths in them are absolute.
type Getenv func(name string) string

// context configures the library: the directory of its large temporary files (removed with the stage), and credentials
// in place of auth.json's.
func (getenv Getenv) context(tmp string, auth *Auth) *types.SystemContext {
	proxies := getenv.proxies()
	sys := &types.SystemContext{
		OSChoice:                    platformOS,
		ArchitectureChoice:          platformArch,
		BigFilesTemporaryDir:        tmp,
		DockerRegistryUserAgent:     userAgent,
		DockerProxy:                 proxies.ProxyFunc(),
		AuthFilePath:                getenv.authFile(),
		SystemRegistriesConfPath:    getenv.registriesConf(),
		SignaturePolicyPath:         getenv.policyFile(),
		OCIAcceptUncompressedLayers: true,
	}
	if auth != nil {
		sys.DockerAuthConfig = &types.DockerAuthConfig{
			Username: auth.Username, Password: auth.Password, IdentityToken: auth.Token,
		}
	}
	return sys
}

// setInsecure allows plain HTTP and untrusted certificates for registries.
func setInsecure(sys *types.SystemContext, insecure bool) {
	if insecure {
		sys.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
	}
}

// authFile returns the auth.json that the environment names, as podman reads it. Without one the library searches its
// usual places.
func (getenv Getenv) authFile() string {
	if path := getenv("REGISTRY_AUTH_FILE"); path != "" {
		return path
	}
	if dir := getenv("DOCKER_CONFIG"); dir != "" {
		return filepath.Join(dir, "config.json")
	}
	return ""
}

func (getenv Getenv) registriesConf() string {
	return getenv.first("CONTAINERS_REGISTRIES_CONF", "REGISTRIES_CONFIG_PATH")
}

func (getenv Getenv) policyFile() string { return getenv("CONTAINERS_POLICY_JSON") }

func (getenv Getenv) proxies() httpproxy.Config {
	return httpproxy.Config{
		HTTPProxy:  getenv.first("HTTP_PROXY", "http_proxy"),
		HTTPSProxy: getenv.first("HTTPS_PROXY", "https_proxy"),
		NoProxy:    getenv.first("NO_PROXY", "no_proxy"),
	}
}

// all returns everything from the environment, for comparison.
func (getenv Getenv) all() []any {
	return []any{getenv.authFile(), getenv.registriesConf(), getenv.policyFile(), getenv.proxies()}
}

// first returns the first variable that is set.
func (getenv Getenv) first(names ...string) string {
	for _, name := range names {
		if value := getenv(name); value != "" {
			return value
		}
	}
	return ""
}
