// Package config is how a node is set up: the flags of `bulkhead node`, which gives them to the program
// in whose process the node is. It knows no API server.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Config is what a node is told. Its zero value is not usable; Add fills in what most nodes have.
type Config struct {
	// Kubeconfig is the file by which the API server is found.
	Kubeconfig string
	// NodeName is the node's; empty is the host's name, in lower case.
	NodeName string
	// NodeIP is the address by which others reach the node; empty is that of the way to the outside.
	NodeIP string
	// Labels and Taints are what the node registers with: KEY=VALUE, and KEY=VALUE:EFFECT.
	Labels, Taints []string
	// MaxPods is how many pods there may be at once.
	MaxPods int
	// Reserved is what of the machine is not for pods: RESOURCE=QUANTITY.
	Reserved []string
	// ClusterDNS are the addresses of the cluster's name servers, ClusterDomain the domain of its services.
	ClusterDNS    []string
	ClusterDomain string
	// Network is what pods get: CNI or User. CNIConf is the directory of CNI's configurations, CNIBin are
	// those of its plugins.
	Network string
	CNIConf string
	CNIBin  []string
	// Warm says which pods' VMs are forks, and of what, as BULKHEAD_WARM does; empty is what that says.
	Warm string
	// Listen is the address of the node's API.
	Listen string
	// Cert and Key are the files of its serving certificate; empty is one that the node signs itself.
	Cert, Key string
	// ClientCA is the file of the authorities of its clients' certificates; empty is that of Kubeconfig.
	ClientCA string
	// LogLevel and LogFormat are those of the node's own log.
	LogLevel, LogFormat string
}

// The networks.
const (
	CNI  = "cni"
	User = "user"
)

// setting is one thing that a node can be told. Value and preset are of one kind.
type setting struct {
	key, help     string
	value, preset any
}

func (c *Config) settings() []setting {
	return []setting{
		{key: "kubeconfig", value: &c.Kubeconfig, preset: "", help: "file by which the API server is found (required)"},
		{key: "node-name", value: &c.NodeName, preset: "", help: "name of the node; empty is the host's"},
		{key: "node-ip", value: &c.NodeIP, preset: "", help: "address by which others reach the node; empty is that of the default route"},
		{key: "node-label", value: &c.Labels, preset: []string{}, help: "label of the node, KEY=VALUE (repeatable)"},
		{key: "register-with-taint", value: &c.Taints, preset: []string{}, help: "taint of a node that is new, KEY=VALUE:EFFECT (repeatable)"},
		{key: "max-pods", value: &c.MaxPods, preset: 110, help: "how many pods there may be at once"},
		{key: "reserve", value: &c.Reserved, preset: []string{}, help: "what of the machine is not for pods, as memory=2Gi (repeatable)"},
		{key: "cluster-dns", value: &c.ClusterDNS, preset: []string{}, help: "address of a name server of the cluster (repeatable)"},
		{key: "cluster-domain", value: &c.ClusterDomain, preset: "cluster.local", help: "domain of the cluster's services"},
		{key: "network", value: &c.Network, preset: CNI, help: "network of pods: cni, by the node's plugins, or user, which needs none"},
		{key: "cni-conf-dir", value: &c.CNIConf, preset: "/etc/cni/net.d", help: "directory of CNI's configurations"},
		{key: "cni-bin-dir", value: &c.CNIBin, preset: []string{"/opt/cni/bin", "/usr/lib/cni"}, help: "directory of CNI's plugins (repeatable)"},
		{key: "warm", value: &c.Warm, preset: "", help: "which pods' VMs are forks of one warm VM, as for bulkhead cri"},
		{key: "listen", value: &c.Listen, preset: "0.0.0.0:10250", help: "IP:PORT of the node's API, for logs and exec"},
		{key: "tls-cert-file", value: &c.Cert, preset: "", help: "serving certificate of that API; empty is one that the node signs itself"},
		{key: "tls-private-key-file", value: &c.Key, preset: "", help: "its key"},
		{key: "client-ca-file", value: &c.ClientCA, preset: "", help: "authorities of client certificates; empty is the kubeconfig's"},
		{key: "log-level", value: &c.LogLevel, preset: "info", help: "least level of what is logged: debug, info, warn or error"},
		{key: "log-format", value: &c.LogFormat, preset: "text", help: "format of the log: text or json"},
	}
}

// Add adds the flags to a command's.
func (c *Config) Add(f *pflag.FlagSet) {
	for _, s := range c.settings() {
		switch v := s.value.(type) {
		case *string:
			f.StringVar(v, s.key, s.preset.(string), s.help)
		case *[]string:
			f.StringArrayVar(v, s.key, slices.Clone(s.preset.([]string)), s.help)
		case *int:
			f.IntVar(v, s.key, s.preset.(int), s.help)
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
		case *int:
			args = append(args, "--"+s.key+"="+strconv.Itoa(*v))
		}
	}
	return args
}

// nodeName is what the API takes as the name of a node.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Check refuses what no node can be told, as far as that can be seen without the API's types, and fills
// in the node's name. The error names the setting.
func (c *Config) Check() error {
	if c.Kubeconfig == "" {
		return errors.New("kubeconfig is required")
	}
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("node-name: %w", err)
		}
		c.NodeName = strings.ToLower(strings.TrimSpace(host))
	}
	if !nodeName.MatchString(c.NodeName) || len(c.NodeName) > 253 {
		return fmt.Errorf("node-name %q is no name of lower-case letters, digits, '-' and '.'", c.NodeName)
	}
	for key, addresses := range map[string][]string{"node-ip": {c.NodeIP}, "cluster-dns": c.ClusterDNS} {
		for _, one := range addresses {
			if _, err := netip.ParseAddr(one); one != "" && err != nil {
				return fmt.Errorf("%s %q is no IP address", key, one)
			}
		}
	}
	for key, dirs := range map[string][]string{"cni-conf-dir": {c.CNIConf}, "cni-bin-dir": c.CNIBin} {
		for _, dir := range dirs {
			if !filepath.IsAbs(dir) {
				return fmt.Errorf("%s %q is not an absolute path", key, dir)
			}
		}
	}
	if c.Network != CNI && c.Network != User {
		return fmt.Errorf("network %q is neither cni nor user", c.Network)
	}
	if _, err := netip.ParseAddrPort(c.Listen); err != nil {
		return fmt.Errorf("listen %q is no IP:PORT", c.Listen)
	}
	if (c.Cert == "") != (c.Key == "") {
		return errors.New("tls-cert-file and tls-private-key-file belong together")
	}
	if c.MaxPods < 1 {
		return fmt.Errorf("max-pods %d is less than 1", c.MaxPods)
	}
	if err := new(slog.Level).UnmarshalText([]byte(c.LogLevel)); err != nil {
		return fmt.Errorf("log-level %q is none of debug, info, warn and error", c.LogLevel)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return fmt.Errorf("log-format %q is neither text nor json", c.LogFormat)
	}
	return nil
}
