// Package config has the settings of a node: the flags of `bulkhead node`, which passes them on to the bulkhead-node
// program. It does not use the types of the Kubernetes API.
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

// Config are the settings of a node. The zero value is not usable; Add sets the defaults.
type Config struct {
	// Kubeconfig is the kubeconfig file for the API server; if empty, the node has only the pods of Manifests.
	Kubeconfig string
	// Manifests is the directory of static pods; empty means none.
	Manifests string
	// Endpoint is the CRI endpoint of another runtime; empty means an engine in the node's process.
	Endpoint string
	// Bootstrap is the kubeconfig for the request of the first certificate, which creates Kubeconfig; empty means none.
	Bootstrap string
	// CertDir is the directory of requested certificates; empty means the directory of Kubeconfig.
	CertDir string
	// NodeName is the name of the node; empty means the host's name in lower case.
	NodeName string
	// NodeIP is the address by which others reach the node; empty means the address of the default route.
	NodeIP string
	// Labels (KEY=VALUE) and Taints (KEY=VALUE:EFFECT) are set at the registration of the node.
	Labels, Taints []string
	// RootDir is a kubelet's root directory, where CSI drivers expect it; empty disables CSI drivers.
	RootDir string
	// MaxPods is the maximum number of pods.
	MaxPods int
	// Reserved are the host's resources that pods cannot use: RESOURCE=QUANTITY.
	Reserved []string
	// ClusterDNS are the addresses of the cluster's name servers. ClusterDomain is the domain of its services.
	ClusterDNS    []string
	ClusterDomain string
	// Network is the network of pods: CNI or User. CNIConf is the directory of CNI configurations. CNIBin are the
	// directories of CNI plugins.
	Network string
	CNIConf string
	CNIBin  []string
	// Warm selects the pods with forked VMs, as BULKHEAD_WARM does; empty means the value of BULKHEAD_WARM.
	Warm string
	// DefaultMemory and DefaultCPUs are the size of the VM of a pod without limits, in the format of setup.Size.
	DefaultMemory, DefaultCPUs string
	// Listen is the address of the node's API.
	Listen string
	// Cert and Key are the files of the serving certificate; empty means self-signed.
	Cert, Key string
	// RotateServing requests and renews the serving certificate by CSR instead.
	RotateServing bool
	// ClientCA is the file of the authorities of client certificates; empty means the authority of Kubeconfig.
	ClientCA string
	// EvictionHard are the thresholds below which pods are evicted: SIGNAL<QUANTITY or SIGNAL<PERCENT%.
	EvictionHard []string
	// ImageGCHigh is the disk usage in percent at which unused images are removed. The removal stops at ImageGCLow.
	ImageGCHigh, ImageGCLow int
	// ImageMinAge is the minimum age of an unused image before it is removed, as a duration.
	ImageMinAge string
	// ShutdownGrace is how long pods may delay a shutdown of the host; empty disables the delay. ShutdownGraceCritical
	// is the part for critical pods; empty means a third.
	ShutdownGrace, ShutdownGraceCritical string
	// LogLevel and LogFormat configure the node's own log.
	LogLevel, LogFormat string
}

// Values of Network.
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
		{Key: "reserve", Value: &c.Reserved, Preset: []string{},
			Help: "resources of the host that pods cannot use, such as memory=2Gi (repeatable)"},
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

// Add adds the flags to a flag set.
func (c *Config) Add(f *pflag.FlagSet) { c.settings().Add(f) }

// Args returns the settings as flags for another program.
func (c *Config) Args() []string { return c.settings().Args() }

// nodeName matches the names of nodes that the API accepts.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Check validates the settings as far as possible without the API's types, and sets defaults that depend on the host.
// It makes paths absolute. The error names the setting.
func (c *Config) Check() error {
	if c.Kubeconfig == "" && c.Manifests == "" {
		return errors.New("kubeconfig or manifests is required")
	}
	for key, dir := range map[string]*string{"manifests": &c.Manifests, "root-dir": &c.RootDir} {
		if *dir == "" {
			continue
		}
		at, err := filepath.Abs(*dir) // another program may run elsewhere
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

// MinImageAge returns the minimum age of an unused image before it is removed.
func (c *Config) MinImageAge() (time.Duration, error) {
	age, err := time.ParseDuration(c.ImageMinAge)
	if err != nil || age < 0 {
		return 0, fmt.Errorf("minimum-image-ttl-duration %q must be a duration such as 2m", c.ImageMinAge)
	}
	return age, nil
}

// Shutdown returns how long pods may delay a shutdown of the host, and the part of it for critical pods.
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
