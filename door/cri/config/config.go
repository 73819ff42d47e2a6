// Package config is how the door of kubelets is set up: by the flags of `bulkhead cri` and
// the keys of its file, which bear the same names. The command gives what it has read of
// both as flags to the engine's program, in whose process the door is.
package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
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
	// Network is what pods get: CNI or User.
	Network string
	// CNIConf is the directory of CNI's configurations, CNIBin are those of its plugins.
	CNIConf string
	CNIBin  []string
	// Warm says which pods' VMs are forks, and of what, as BULKHEAD_WARM does; empty is
	// what that says.
	Warm string
	// Handlers are runtime handlers, as ParseHandlers reads them.
	Handlers []string
	// Metrics is the address of the server of metrics; empty is none.
	Metrics string
	// Traces is the URL of a collector of traces; empty is none.
	Traces string
	// NRI has the node's plugins of NRI be asked.
	NRI bool
	// LogLevel and LogFormat are those of the door's own log.
	LogLevel, LogFormat string
}

// setting is one thing that the door can be told. Value and preset are a *string and a
// string, or a *[]string and a []string.
type setting struct {
	key, help     string
	value, preset any
}

// settings are all that there are, in the order of the documentation. A key of the file
// is the name of a flag.
func (c *Config) settings() []setting {
	return []setting{
		{
			key: "listen", value: &c.Listen, preset: "unix:///run/bulkhead/cri.sock",
			help: "unix socket that the kubelet is given as containerRuntimeEndpoint",
		},
		{
			key: "kubelet-root", value: &c.Kubelet, preset: "/var/lib/kubelet",
			help: "the kubelet's root directory, in which pods' volumes lie",
		},
		{
			key: "log-dir", value: &c.Logs, preset: []string{"/var/log/pods"},
			help: "directory below which pods' logs may lie (repeatable)",
		},
		{
			key: "network", value: &c.Network, preset: CNI,
			help: "network of pods: cni, by the node's plugins, or user, which needs none",
		},
		{
			key: "cni-conf-dir", value: &c.CNIConf, preset: "/etc/cni/net.d",
			help: "directory of CNI's configurations, of which the first by name holds for the next pod",
		},
		{
			key: "cni-bin-dir", value: &c.CNIBin, preset: []string{"/opt/cni/bin", "/usr/lib/cni"},
			help: "directory of CNI's plugins (repeatable)",
		},
		{
			key: "warm", value: &c.Warm, preset: "",
			help: "which pods' VMs are forks of one warm VM: on (all), off (none), namespace or label=KEY (those with the same); " +
				"empty is BULKHEAD_WARM, or on",
		},
		{
			key: "runtime-handler", value: &c.Handlers, preset: []string{},
			help: "handler for pods of a RuntimeClass, beside bulkhead and bulkhead-cold: NAME=OPTION,..., of cold (boot each VM), " +
				"no-fork (clone each VM), kvm and tcg (repeatable)",
		},
		{
			key: "metrics-address", value: &c.Metrics, preset: "",
			help: "IP:PORT where Prometheus reads /metrics, by plain HTTP; empty is nowhere",
		},
		{
			key: "trace-endpoint", value: &c.Traces, preset: "",
			help: "URL that OpenTelemetry's traces are sent to, by OTLP over HTTP; empty is nowhere",
		},
		{
			key: "nri", value: &c.NRI, preset: false,
			help: "ask plugins of NRI, of /opt/nri/plugins and at /var/run/nri/nri.sock, which no other runtime has then",
		},
		{
			key: "log-level", value: &c.LogLevel, preset: "info",
			help: "least level of what is logged: debug, info, warn or error",
		},
		{
			key: "log-format", value: &c.LogFormat, preset: "text",
			help: "format of the log: text or json",
		},
	}
}

// The networks.
const (
	CNI  = "cni"
	User = "user"
)

// Add adds the flags to a command's.
func (c *Config) Add(f *pflag.FlagSet) {
	for _, s := range c.settings() {
		switch v := s.value.(type) {
		case *string:
			f.StringVar(v, s.key, s.preset.(string), s.help)
		case *[]string:
			f.StringArrayVar(v, s.key, slices.Clone(s.preset.([]string)), s.help)
		case *bool:
			f.BoolVar(v, s.key, s.preset.(bool), s.help)
		}
	}
}

// Args are the flags again, for another program that has added them.
func (c *Config) Args() (args []string) {
	for _, s := range c.settings() {
		switch v := s.value.(type) {
		case *string:
			args = append(args, "--"+s.key+"="+*v)
		case *[]string:
			for _, one := range *v {
				args = append(args, "--"+s.key+"="+one)
			}
		case *bool:
			args = append(args, "--"+s.key+"="+strconv.FormatBool(*v))
		}
	}
	return args
}

// Check refuses what no door can be told. The error names the setting.
func (c *Config) Check() error {
	if path, ok := strings.CutPrefix(c.Listen, "unix://"); !ok || !filepath.IsAbs(path) {
		return fmt.Errorf("listen %q is not unix:// and an absolute path", c.Listen)
	}
	for key, dirs := range map[string][]string{
		"kubelet-root": {c.Kubelet}, "log-dir": c.Logs, "cni-conf-dir": {c.CNIConf}, "cni-bin-dir": c.CNIBin,
	} {
		for _, dir := range dirs {
			if !filepath.IsAbs(dir) {
				return fmt.Errorf("%s %q is not an absolute path", key, dir)
			}
		}
	}
	if c.Network != CNI && c.Network != User {
		return fmt.Errorf("network %q is neither cni nor user", c.Network)
	}
	if c.Metrics != "" {
		if _, err := netip.ParseAddrPort(c.Metrics); err != nil {
			return fmt.Errorf("metrics-address %q is no IP:PORT", c.Metrics)
		}
	}
	if c.Traces != "" {
		if u, err := url.Parse(c.Traces); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("trace-endpoint %q is no URL of http or https", c.Traces)
		}
	}
	if _, err := ParseHandlers(c.Handlers); err != nil {
		return err
	}
	if err := new(slog.Level).UnmarshalText([]byte(c.LogLevel)); err != nil {
		return fmt.Errorf("log-level %q is none of debug, info, warn and error", c.LogLevel)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return fmt.Errorf("log-format %q is neither text nor json", c.LogFormat)
	}
	return nil
}

// Socket is the path of the socket, once Check has passed.
func (c *Config) Socket() string { return strings.TrimPrefix(c.Listen, "unix://") }
