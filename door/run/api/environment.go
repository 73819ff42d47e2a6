package api

import (
	"net/url"
	"os"
	"path/filepath"
)

// EnvironmentHeader is the header of a request with the encoded Environment of the command that sent it.
const EnvironmentHeader = "Bulkhead-Environment"

// Environment has the variables that control how a command reaches registries and resolves image names. The
// engine's own environment may be outdated and must not be used. The values may contain passwords (of proxies), so
// they are kept only in memory.
type Environment map[string]string

// The variables of an Environment. Those in files name files and are made absolute, because the engine has another
// working directory.
var (
	proxies = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"}
	files   = []string{"REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "CONTAINERS_REGISTRIES_CONF", "REGISTRIES_CONFIG_PATH", "CONTAINERS_POLICY_JSON"}
)

// ReadEnvironment reads the variables of this process.
func ReadEnvironment() Environment {
	e := Environment{}
	for _, name := range proxies {
		if value := os.Getenv(name); value != "" {
			e[name] = value
		}
	}
	for _, name := range files {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		if path, err := filepath.Abs(value); err == nil {
			value = path // otherwise the use of the file fails and reports it
		}
		e[name] = value
	}
	return e
}

// TakeEnvironment is ReadEnvironment, and removes the variables from the process. Libraries then see only what the
// caller passes on.
func TakeEnvironment() (Environment, error) {
	e := ReadEnvironment()
	for name := range e {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Get returns a variable's value, "" if it is not set.
func (e Environment) Get(name string) string { return e[name] }

// Encode returns e as the value of a header.
func (e Environment) Encode() string {
	v := url.Values{}
	for name, value := range e {
		v.Set(name, value)
	}
	return v.Encode()
}

// ParseEnvironment is the inverse of Encode.
func ParseEnvironment(text string) (Environment, error) {
	v, err := url.ParseQuery(text)
	if err != nil {
		return nil, err
	}
	e := Environment{}
	for name := range v {
		e[name] = v.Get(name)
	}
	return e, nil
}
