package cni

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/bulkhead-project/bulkhead/internal/trusted"
	"github.com/bulkhead-project/bulkhead/network"
)

// maxConf bounds a configuration, in bytes.
const maxConf = 1 << 20

// load reads the first valid configuration.
func (p *Provider) load() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(p.o.Conf, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("read the network configurations in %s: %w", p.o.Conf, err)
	}
	slices.Sort(files)
	var problems []error
	for _, file := range files {
		list, err := readList(file)
		if err == nil {
			return list, p.plugins(list)
		}
		problems = append(problems, fmt.Errorf("%s: %w", filepath.Base(file), err))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("no valid network configuration in %s: %w", p.o.Conf, problems[0])
	}
	return nil, fmt.Errorf("no network configuration in %s: install a network plugin", p.o.Conf)
}

// readList reads a list of plugins, or the older form with one plugin.
func readList(file string) (*libcni.NetworkConfigList, error) {
	data, err := trusted.Read(file, maxConf)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(file) == ".conflist" {
		return libcni.NetworkConfFromBytes(data)
	}
	plugin, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	list, err := json.Marshal(map[string]any{
		"cniVersion": plugin.Network.CNIVersion, "name": plugin.Network.Name, "plugins": []json.RawMessage{data},
	})
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(list)
}

// plugins checks that a configuration's programs exist.
func (p *Provider) plugins(list *libcni.NetworkConfigList) error {
	for _, plugin := range list.Plugins {
		if _, err := invoke.FindInPath(plugin.Network.Type, p.o.Bin); err != nil {
			return fmt.Errorf("network %s: %w", list.Name, err)
		}
	}
	return nil
}

// takes reports whether a plugin of the list has a capability.
func takes(list *libcni.NetworkConfigList, capability string) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.NetworkConfig) bool { return p.Network.Capabilities[capability] })
}

// portMapping and bandwidth are arguments of capabilities, from CNI's conventions.
type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

type bandwidth struct {
	IngressRate  int64 `json:"ingressRate,omitempty"`
	IngressBurst int64 `json:"ingressBurst,omitempty"`
	EgressRate   int64 `json:"egressRate,omitempty"`
	EgressBurst  int64 `json:"egressBurst,omitempty"`
}

// burst is the largest burst that plugins accept, in bits: only the rate is limited.
const burst = math.MaxInt32

// capabilities returns the arguments for a pod's request. The caller publishes the ports in left.
func capabilities(list *libcni.NetworkConfigList, r network.Request) (args map[string]any, left []network.Port, err error) {
	args, left = map[string]any{}, r.Ports
	if len(r.Ports) > 0 && takes(list, "portMappings") {
		var mappings []portMapping
		for _, p := range r.Ports {
			mappings = append(mappings, portMapping{p.HostPort, p.PodPort, cmpProtocol(p.Protocol), p.HostIP})
		}
		args["portMappings"], left = mappings, nil
	}
	if limit := r.Bandwidth; limit != (network.Bandwidth{}) {
		if !takes(list, "bandwidth") {
			return nil, nil, fmt.Errorf("%w: bandwidth limits: network %s has no plugin for them", network.ErrNotSupported, list.Name)
		}
		b := bandwidth{IngressRate: limit.Ingress, EgressRate: limit.Egress}
		if b.IngressRate > 0 {
			b.IngressBurst = burst
		}
		if b.EgressRate > 0 {
			b.EgressBurst = burst
		}
		args["bandwidth"] = b
	}
	if r.DNS != nil && takes(list, "dns") {
		args["dns"] = map[string][]string{"servers": r.DNS.Servers, "searches": r.DNS.Searches, "options": r.DNS.Options}
	}
	return args, left, nil
}

// cmpProtocol returns a protocol in the plugins' form.
func cmpProtocol(p string) string {
	if p == "" {
		return "tcp"
	}
	return p
}
