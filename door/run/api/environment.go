package api

import (
	"net/url"
	"os"
	"path/filepath"
)

// EnvironmentHeader is the header of a request with the Environment of the
// command that made it, encoded.
const EnvironmentHeader = "Bulkhead-Environment"

// Environment are the variables that tell how a command reaches registries, and
// what it knows images by. The engine has an environment of its own, from
// another day, and must not go by it. It may hold passwords (of proxies): it is
// kept in memory only.
type Environment map[string]string

// The variables, of which those of files are made absolute: the engine has
// another working directory.
var (
	proxies = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"}
	files   = []string{"REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "CONTAINERS_REGISTRIES_CONF", "REGISTRIES_CONFIG_PATH", "CONTAINERS_POLICY_JSON"}
)

// ReadEnvironment is the process's own.
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
			value = path // else its use fails, and says so
		}
		e[name] = value
	}
	return e
}

// TakeEnvironment is ReadEnvironment, of which the process's own environment
// keeps nothing: what it does not pass on, no library goes by.
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

// Encode is e as a header's value.
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
