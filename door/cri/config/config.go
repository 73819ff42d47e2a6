// Package config is the configuration of the door for kubelets: the flags of `bulkhead cri` and the keys of its file,
// which have the same names. The command passes the combined settings as flags to the engine's process, which runs the
// door.
package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/internal/settings"
)

// Config is the door's configuration. Its zero value is not usable; Add sets the defaults.
type Config struct {
	// Listen is the unix socket as a kubelet names it: "unix:///run/bulkhead/cri.sock".
	Listen string
	// Kubelet is the kubelet's root directory.
	Kubelet string
	// Logs are the directories that contain pods' log directories.
	Logs []string
	// Network is the network of pods: CNI or User.
	Network string
	// CNIConf is the directory of the CNI configurations, and CNIBin are the directories of the CNI plugins.
	CNIConf string
	CNIBin  []string
	// Warm says which pods share warm VMs, in the format of BULKHEAD_WARM. If it is empty, that variable applies.
	Warm string
	// DefaultMemory and DefaultCPUs are the VM size of pods without limits, in the format of setup.Size.
	DefaultMemory, DefaultCPUs string
	// Handlers are runtime handlers in the format of ParseHandlers.
	Handlers []string
	// Metrics is the listen address of the metrics server, or "".
	Metrics string
	// Traces is the URL of a trace collector, or "".
	Traces string
	// NRI enables the node's NRI plugins.
	NRI bool
	// LogLevel and LogFormat configure the door's log.
	LogLevel, LogFormat string
}

// settings lists all settings in the order of the documentation. A key of the file is also the name of a flag.
func (c *Config) settings() settings.Table {
	return settings.Table{
		{
			Key: "listen", Value: &c.Listen, Preset: "unix:///run/bulkhead/cri.sock",
			Help: "unix socket of the server, the kubelet's containerRuntimeEndpoint",
		},
		{
			Key: "kubelet-root", Value: &c.Kubelet, Preset: "/var/lib/kubelet",
			Help: "the kubelet's root directory, which contains pods' volumes",
		},
		{
			Key: "log-dir", Value: &c.Logs, Preset: []string{"/var/log/pods"},
			Help: "directory that may contain pods' logs (repeatable)",
		},
		{
			Key: "network", Value: &c.Network, Preset: CNI,
			Help: "network of pods: cni (uses the node's plugins) or user (needs no plugins)",
		},
		{
			Key: "cni-conf-dir", Value: &c.CNIConf, Preset: "/etc/cni/net.d",
			Help: "directory of CNI configurations; the first by name applies to the next pod",
		},
		{
			Key: "cni-bin-dir", Value: &c.CNIBin, Preset: []string{"/opt/cni/bin", "/usr/lib/cni"},
			Help: "directory of CNI plugins (repeatable)",
		},
		{
			Key: "warm", Value: &c.Warm, Preset: "",
			Help: "which pods share a warm VM to fork: on (all), off (none), namespace or label=KEY (pods with the same value); " +
				"empty means BULKHEAD_WARM, or on",
		},
		{
			Key: "default-memory", Value: &c.DefaultMemory, Preset: "",
			Help: "VM memory of a pod without a limit, such as 2Gi; empty means BULKHEAD_DEFAULT_MEMORY, or half of the host's " +
				"memory, at least 512Mi and at most 2Gi",
		},
		{
			Key: "default-cpus", Value: &c.DefaultCPUs, Preset: "",
			Help: "VM CPUs of a pod without a limit; empty means BULKHEAD_DEFAULT_CPUS, or 1",
		},
		{
			Key: "runtime-handler", Value: &c.Handlers, Preset: []string{},
			Help: "handler for a RuntimeClass, in addition to bulkhead and bulkhead-cold: NAME=OPTION,..., with options cold (boot each VM), " +
				"no-fork (clone each VM), kvm and tcg (repeatable)",
		},
		{
			Key: "metrics-address", Value: &c.Metrics, Preset: "",
			Help: "IP:PORT for Prometheus metrics at /metrics over plain HTTP; empty means none",
		},
		{
			Key: "trace-endpoint", Value: &c.Traces, Preset: "",
			Help: "URL for OpenTelemetry traces, sent as OTLP over HTTP; empty means none",
		},
		{
			Key: "nri", Value: &c.NRI, Preset: false,
			Help: "use NRI plugins in /opt/nri/plugins and at /var/run/nri/nri.sock, which no other runtime can then serve",
		},
		{
			Key: "log-level", Value: &c.LogLevel, Preset: "info",
			Help: "lowest level that is logged: debug, info, warn or error",
		},
		{
			Key: "log-format", Value: &c.LogFormat, Preset: "text",
			Help: "log format: text or json",
		},
	}
}

// The kinds of network.
const (
	CNI  = "cni"
	User = "user"
)

// Add adds the flags to a flag set.
func (c *Config) Add(f *pflag.FlagSet) { c.settings().Add(f) }

// Args returns the settings as arguments for another program with the same flags.
func (c *Config) Args() []string { return c.settings().Args() }

// Check returns an error that names an invalid setting.
func (c *Config) Check() error {
	if path, ok := strings.CutPrefix(c.Listen, "unix://"); !ok || !filepath.IsAbs(path) {
		return fmt.Errorf("listen %q must be unix:// and an absolute path", c.Listen)
	}
	for key, dirs := range map[string][]string{
		"kubelet-root": {c.Kubelet}, "log-dir": c.Logs, "cni-conf-dir": {c.CNIConf}, "cni-bin-dir": c.CNIBin,
	} {
		if err := settings.Absolute(key, dirs...); err != nil {
			return err
		}
	}
	if c.Network != CNI && c.Network != User {
		return fmt.Errorf("network %q must be cni or user", c.Network)
	}
	if c.Metrics != "" {
		if _, err := netip.ParseAddrPort(c.Metrics); err != nil {
			return fmt.Errorf("metrics-address %q must be IP:PORT", c.Metrics)
		}
	}
	if c.Traces != "" {
		if u, err := url.Parse(c.Traces); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("trace-endpoint %q must be an http or https URL", c.Traces)
		}
	}
	if _, err := ParseHandlers(c.Handlers); err != nil {
		return err
	}
	return settings.Logging(c.LogLevel, c.LogFormat)
}

// Socket returns the path of the socket. Check must have succeeded.
func (c *Config) Socket() string { return strings.TrimPrefix(c.Listen, "unix://") }
