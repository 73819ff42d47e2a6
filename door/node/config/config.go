// Package config is how a node is set up: the flags of `bulkhead node`, which gives them to the program
// in whose process the node is. It knows no API server.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/internal/settings"
)

// Config is what a node is told. Its zero value is not usable; Add fills in what most nodes have.
type Config struct {
	// Kubeconfig is the file by which the API server is found; empty is a node without one, of Manifests alone.
	Kubeconfig string
	// Manifests is the directory of static pods; empty is none.
	Manifests string
	// Endpoint is the CRI endpoint of the runtime that pods run on; empty is the engine of the node's own process.
	Endpoint string
	// Bootstrap is the kubeconfig by which a first certificate is asked for and Kubeconfig is made; empty is none.
	Bootstrap string
	// CertDir is the directory of certificates that were asked for; empty is that of Kubeconfig.
	CertDir string
	// NodeName is the node's; empty is the host's name, in lower case.
	NodeName string
	// NodeIP is the address by which others reach the node; empty is that of the way to the outside.
	NodeIP string
	// Labels and Taints are what the node registers with: KEY=VALUE, and KEY=VALUE:EFFECT.
	Labels, Taints []string
	// RootDir is where CSI drivers look for a node, as a kubelet's root directory; empty has none.
	RootDir string
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
	// DefaultMemory and DefaultCPUs are the size of the VMs of pods that state no limit, as setup.Size reads them.
	DefaultMemory, DefaultCPUs string
	// Listen is the address of the node's API.
	Listen string
	// Cert and Key are the files of its serving certificate; empty is one that the node signs itself.
	Cert, Key string
	// RotateServing has that certificate asked for and renewed instead.
	RotateServing bool
	// ClientCA is the file of the authorities of its clients' certificates; empty is that of Kubeconfig.
	ClientCA string
	// EvictionHard are the thresholds from which on pods are evicted: SIGNAL<QUANTITY or SIGNAL<PERCENT%.
	EvictionHard []string
	// ImageGCHigh is the percentage of the disk in use from which on unused images are removed, until
	// ImageGCLow is in use.
	ImageGCHigh, ImageGCLow int
	// ImageMinAge is how long an image is kept at least, a duration.
	ImageMinAge string
	// ShutdownGrace is how long the machine's end is held up for the pods' at most, ShutdownGraceCritical how much of
	// it is for critical ones; empty is not at all, and a third of it.
	ShutdownGrace, ShutdownGraceCritical string
	// LogLevel and LogFormat are those of the node's own log.
	LogLevel, LogFormat string
}

// The networks.
const (
	CNI  = "cni"
	User = "user"
)

func (c *Config) settings() settings.Table {
	return settings.Table{
		{Key: "kubeconfig", Value: &c.Kubeconfig, Preset: "", Help: "kubeconfig file for the API server"},
		{Key: "manifests", Value: &c.Manifests, Preset: "", Help: "directory of static pods, with or without an API server"},
		{Key: "cri-endpoint", Value: &c.Endpoint, Preset: "", Help: "unix:///PATH of another runtime to use instead of the node's own"},
		{Key: "bootstrap-kubeconfig", Value: &c.Bootstrap, Preset: "", Help: "kubeconfig file for the request of the first certificate"},
		{Key: "cert-dir", Value: &c.CertDir, Preset: "", Help: "directory of requested certificates (default: the kubeconfig's)"},
		{Key: "node-name", Value: &c.NodeName, Preset: "", Help: "name of the node (default: the host's name)"},
		{Key: "node-ip", Value: &c.NodeIP, Preset: "", Help: "address by which others reach the node (default: of the default route)"},
		{Key: "node-label", Value: &c.Labels, Preset: []string{}, Help: "label of the node, KEY=VALUE (repeatable)"},
		{Key: "register-with-taint", Value: &c.Taints, Preset: []string{}, Help: "taint of a new node, KEY=VALUE:EFFECT (repeatable)"},
		{Key: "max-pods", Value: &c.MaxPods, Preset: 110, Help: "maximum number of pods"},
		{Key: "reserve", Value: &c.Reserved, Preset: []string{}, Help: "resources of the host that pods cannot use, such as memory=2Gi (repeatable)"},
		{Key: "root-dir", Value: &c.RootDir, Preset: "/var/lib/kubelet",
			Help: "root directory of a kubelet, where CSI drivers expect it; empty disables CSI drivers"},
		{Key: "cluster-dns", Value: &c.ClusterDNS, Preset: []string{}, Help: "address of a name server of the cluster (repeatable)"},
		{Key: "cluster-domain", Value: &c.ClusterDomain, Preset: "cluster.local", Help: "domain of the cluster's services"},
		{Key: "network", Value: &c.Network, Preset: CNI, Help: "network of pods: cni (the node's plugins) or user (needs no plugins)"},
		{Key: "cni-conf-dir", Value: &c.CNIConf, Preset: "/etc/cni/net.d", Help: "directory of CNI's configurations"},
		{Key: "cni-bin-dir", Value: &c.CNIBin, Preset: []string{"/opt/cni/bin", "/usr/lib/cni"}, Help: "directory of CNI's plugins (repeatable)"},
		{Key: "warm", Value: &c.Warm, Preset: "", Help: "which pods' VMs are forks of one warm VM, as for bulkhead cri"},
		{Key: "default-memory", Value: &c.DefaultMemory, Preset: "",
			Help: "memory of the VM of a pod without a limit, as for bulkhead cri"},
		{Key: "default-cpus", Value: &c.DefaultCPUs, Preset: "", Help: "CPUs of the VM of a pod without a limit, as for bulkhead cri"},
		{Key: "listen", Value: &c.Listen, Preset: "0.0.0.0:10250", Help: "IP:PORT of the node's API, for logs and exec"},
		{Key: "tls-cert-file", Value: &c.Cert, Preset: "", Help: "serving certificate of that API (default: self-signed)"},
		{Key: "tls-private-key-file", Value: &c.Key, Preset: "", Help: "key of the serving certificate"},
		{Key: "rotate-server-certificates", Value: &c.RotateServing, Preset: false, Help: "request that certificate by CSR, and renew it"},
		{Key: "client-ca-file", Value: &c.ClientCA, Preset: "", Help: "authorities of client certificates (default: the kubeconfig's)"},
		{Key: "eviction-hard", Value: &c.EvictionHard, Preset: []string{"memory.available<100Mi", "nodefs.available<10%",
			"nodefs.inodesFree<5%", "imagefs.available<15%", "imagefs.inodesFree<5%"},
			Help: "threshold below which pods are evicted (repeatable)"},
		{Key: "image-gc-high-threshold", Value: &c.ImageGCHigh, Preset: 85,
			Help: "disk usage in percent at which unused images are removed"},
		{Key: "image-gc-low-threshold", Value: &c.ImageGCLow, Preset: 80, Help: "disk usage in percent at which that removal stops"},
		{Key: "minimum-image-ttl-duration", Value: &c.ImageMinAge, Preset: "2m", Help: "minimum age of an unused image before it is removed"},
		{Key: "shutdown-grace-period", Value: &c.ShutdownGrace, Preset: "",
			Help: "how long pods may delay a shutdown of the host, such as 30s; empty disables it"},
		{Key: "shutdown-grace-period-critical-pods", Value: &c.ShutdownGraceCritical, Preset: "",
			Help: "part of that period for critical pods (default: a third)"},
		{Key: "log-level", Value: &c.LogLevel, Preset: "info", Help: "lowest level that is logged: debug, info, warn or error"},
		{Key: "log-format", Value: &c.LogFormat, Preset: "text", Help: "format of the log: text or json"},
	}
}

// Add adds the flags to a command's.
func (c *Config) Add(f *pflag.FlagSet) { c.settings().Add(f) }

// Args are the flags again, for another program that has added them.
func (c *Config) Args() []string { return c.settings().Args() }

// nodeName is what the API takes as the name of a node.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Check refuses what no node can be told, as far as that can be seen without the API's types, and fills
// in the node's name. The error names the setting.
func (c *Config) Check() error {
	if c.Kubeconfig == "" && c.Manifests == "" {
		return errors.New("kubeconfig or manifests is required")
	}
	for key, dir := range map[string]*string{"manifests": &c.Manifests, "root-dir": &c.RootDir} {
		if *dir == "" {
			continue
		}
		at, err := filepath.Abs(*dir) // another program may be given it
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		*dir = at
	}
	if path, is := strings.CutPrefix(c.Endpoint, "unix://"); c.Endpoint != "" && (!is || !strings.HasPrefix(path, "/")) {
		return fmt.Errorf("cri-endpoint %q must be unix:///PATH", c.Endpoint)
	}
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("node-name: %w", err)
		}
		c.NodeName = strings.ToLower(strings.TrimSpace(host))
	}
	if !nodeName.MatchString(c.NodeName) || len(c.NodeName) > 253 {
		return fmt.Errorf("node-name %q must consist of lower-case letters, digits, '-' and '.'", c.NodeName)
	}
	for key, addresses := range map[string][]string{"node-ip": {c.NodeIP}, "cluster-dns": c.ClusterDNS} {
		for _, one := range addresses {
			if _, err := netip.ParseAddr(one); one != "" && err != nil {
				return fmt.Errorf("%s %q must be an IP address", key, one)
			}
		}
	}
	for key, dirs := range map[string][]string{"cni-conf-dir": {c.CNIConf}, "cni-bin-dir": c.CNIBin} {
		if err := settings.Absolute(key, dirs...); err != nil {
			return err
		}
	}
	if c.Network != CNI && c.Network != User {
		return fmt.Errorf("network %q must be cni or user", c.Network)
	}
	if _, err := netip.ParseAddrPort(c.Listen); err != nil {
		return fmt.Errorf("listen %q must be IP:PORT", c.Listen)
	}
	if (c.Cert == "") != (c.Key == "") {
		return errors.New("tls-cert-file and tls-private-key-file must be set together")
	}
	if c.Cert != "" && c.RotateServing {
		return errors.New("tls-cert-file and rotate-server-certificates cannot be set together")
	}
	if (c.Bootstrap != "" || c.RotateServing) && c.Kubeconfig == "" {
		return errors.New("bootstrap-kubeconfig and rotate-server-certificates need a kubeconfig")
	}
	if c.CertDir == "" && c.Kubeconfig != "" {
		c.CertDir = filepath.Dir(c.Kubeconfig)
	}
	if c.MaxPods < 1 {
		return fmt.Errorf("max-pods %d must be at least 1", c.MaxPods)
	}
	if c.ImageGCLow < 0 || c.ImageGCHigh > 100 || c.ImageGCLow >= c.ImageGCHigh {
		return fmt.Errorf("image-gc-low-threshold %d must be below image-gc-high-threshold %d, both from 0 to 100",
			c.ImageGCLow, c.ImageGCHigh)
	}
	if _, err := c.MinImageAge(); err != nil {
		return err
	}
	if _, _, err := c.Shutdown(); err != nil {
		return err
	}
	return settings.Logging(c.LogLevel, c.LogFormat)
}

// MinImageAge is how long an image is kept at least.
func (c *Config) MinImageAge() (time.Duration, error) {
	age, err := time.ParseDuration(c.ImageMinAge)
	if err != nil || age < 0 {
		return 0, fmt.Errorf("minimum-image-ttl-duration %q must be a duration such as 2m", c.ImageMinAge)
	}
	return age, nil
}

// Shutdown is how long the machine's end is held up for the pods', and how much of that is for critical ones.
func (c *Config) Shutdown() (period, critical time.Duration, err error) {
	if c.ShutdownGrace == "" && c.ShutdownGraceCritical == "" {
		return 0, 0, nil
	}
	if period, err = time.ParseDuration(c.ShutdownGrace); err != nil || period < time.Second {
		return 0, 0, fmt.Errorf("shutdown-grace-period %q must be a duration of at least 1s, such as 30s", c.ShutdownGrace)
	}
	if c.ShutdownGraceCritical == "" {
		return period, period / 3, nil
	}
	if critical, err = time.ParseDuration(c.ShutdownGraceCritical); err != nil || critical < 0 || critical > period {
		return 0, 0, fmt.Errorf("shutdown-grace-period-critical-pods %q must be a duration of at most %s", c.ShutdownGraceCritical, period)
	}
	return period, critical, nil
}
