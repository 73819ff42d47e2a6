package config

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kubelet's limits for a pod's DNS configuration.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// DNSOf returns the pod's resolver configuration, and notes about the parts that were cut. A nil configuration leaves
// it to the runtime.
func DNSOf(o *Options) (config *runtimeapi.DNSConfig, notes []string) {
	own := o.Pod.Spec.DNSConfig
	switch {
	case o.Pod.Spec.DNSPolicy == corev1.DNSNone:
		config = &runtimeapi.DNSConfig{}
	case o.DNS != nil:
		config = cloneDNS(o.DNS())
	case own == nil:
		return nil, nil
	}
	if config == nil {
		config = &runtimeapi.DNSConfig{}
	}
	if own != nil {
		config.Servers = unique(append(config.Servers, own.Nameservers...))
		config.Searches = unique(append(config.Searches, own.Searches...))
		config.Options = mergeOptions(config.Options, own.Options)
	}
	if len(config.Servers) > maxNameservers {
		config.Servers = config.Servers[:maxNameservers]
		notes = append(notes, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+
			""+strings.Join(config.Servers, " "))
	}
	if kept := fitSearches(config.Searches); len(kept) != len(config.Searches) {
		config.Searches = kept
		notes = append(notes, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+
			""+strings.Join(kept, " "))
	}
	return config, notes
}

func cloneDNS(c *runtimeapi.DNSConfig) *runtimeapi.DNSConfig {
	return &runtimeapi.DNSConfig{
		Servers: slices.Clone(c.GetServers()), Searches: slices.Clone(c.GetSearches()), Options: slices.Clone(c.GetOptions()),
	}
}

// unique removes duplicates and keeps the order.
func unique(words []string) []string {
	var out []string
	for _, word := range words {
		if !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}

// mergeOptions merges the pod's options over have, by name, in order of first mention. The kubelet's order is that of a
// map.
func mergeOptions(have []string, own []corev1.PodDNSConfigOption) []string {
	var order []string
	values := make(map[string]string)
	put := func(name, value string) {
		if _, known := values[name]; !known {
			order = append(order, name)
		}
		values[name] = value
	}
	for _, option := range have {
		name, value, _ := strings.Cut(option, ":")
		put(name, value)
	}
	for _, option := range own {
		value := ""
		if option.Value != nil {
			value = *option.Value
		}
		put(option.Name, value)
	}
	var out []string
	for _, name := range order {
		if value := values[name]; value != "" {
			name = fmt.Sprintf("%s:%s", name, value)
		}
		out = append(out, name)
	}
	return out
}

// fitSearches returns the first domains up to the limits of resolvers. It drops domains that are too long, because some
// resolvers abort on them.
func fitSearches(searches []string) []string {
	kept := slices.DeleteFunc(slices.Clone(searches[:min(len(searches), maxSearches)]), func(s string) bool {
		return len(s) > validation.DNS1123SubdomainMaxLength
	})
	for len(strings.Join(kept, " ")) > maxSearchChars {
		kept = kept[:len(kept)-1]
	}
	return kept
}
