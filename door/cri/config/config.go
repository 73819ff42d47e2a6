// Package config is how the door of kubelets is set up: by the flags of `bulkhead cri`,
// which it gives to the engine's program in whose process the door is.
package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// Config is what the door is told. Its zero value is not usable; Add fills in what most
// nodes have.
type Config struct {
	// Listen is the unix socket, as a kubelet names it: "unix:///run/bulkhead/cri.sock".
	Listen string
	// Kubelet is the root directory of the kubelet.
	Kubelet string
	// Logs are the directories below which log directories of pods lie.
	Logs []string
}

// Add adds the flags to a command's.
func (c *Config) Add(f *pflag.FlagSet) {
	f.StringVar(&c.Listen, "listen", "unix:///run/bulkhead/cri.sock", "unix socket that the kubelet is given as containerRuntimeEndpoint")
	f.StringVar(&c.Kubelet, "kubelet-root", "/var/lib/kubelet", "the kubelet's root directory, in which pods' volumes lie")
	f.StringSliceVar(&c.Logs, "log-dir", []string{"/var/log/pods"}, "directory below which pods' logs may lie (repeatable)")
}

// Args are the flags again, for another program that has added them.
func (c *Config) Args() []string {
	return []string{"--listen=" + c.Listen, "--kubelet-root=" + c.Kubelet, "--log-dir=" + strings.Join(c.Logs, ",")}
}

// Socket is the path of the socket.
func (c *Config) Socket() (string, error) {
	path, ok := strings.CutPrefix(c.Listen, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return "", fmt.Errorf("--listen %q is not unix:// and an absolute path", c.Listen)
	}
	for _, dir := range append([]string{c.Kubelet}, c.Logs...) {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("directory %q is not absolute", dir)
		}
	}
	return path, nil
}
