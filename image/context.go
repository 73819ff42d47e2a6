package image

import (
	"path/filepath"

	"go.podman.io/image/v5/types"
	"golang.org/x/net/http/httpproxy"
)

// Every guest is of one platform.
const (
	platformOS   = "linux"
	platformArch = "amd64"
)

// userAgent is what registries see.
const userAgent = "bulkhead"

// Getenv is the environment that says how registries are reached and what they
// are known by: the value of a variable, "" for one that is not set. The
// variables are podman's, and files' paths in them are absolute.
type Getenv func(name string) string

// context configures the library: where its large temporary files go (they end
// with the stage), and credentials instead of auth.json's.
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

// setInsecure lets registries speak plain HTTP, or have certificates that nobody has signed.
func setInsecure(sys *types.SystemContext, insecure bool) {
	if insecure {
		sys.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
	}
}

// authFile is the auth.json that the environment names, as podman reads it;
// without one the library looks in its usual places.
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

// all is what there is of the environment, to compare.
func (getenv Getenv) all() []any {
	return []any{getenv.authFile(), getenv.registriesConf(), getenv.policyFile(), getenv.proxies()}
}

// first is the first variable that is set.
func (getenv Getenv) first(names ...string) string {
	for _, name := range names {
		if value := getenv(name); value != "" {
			return value
		}
	}
	return ""
}
