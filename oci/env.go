package oci

import "strings"

// DefaultEnv adds key=value to an environment that does not set key. It may modify env.
func DefaultEnv(env []string, key, value string) []string {
	for _, entry := range env {
		if strings.HasPrefix(entry, key+"=") {
			return env
		}
	}
	return SetEnv(env, key, value)
}

// SetEnv replaces the entry of key, also one without a value, or adds one.
func SetEnv(env []string, key, value string) []string {
	for i, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); name == key {
			env[i] = key + "=" + value
			return env
		}
	}
	return append(env, key+"="+value)
}
