package podapi

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The API's limits for a DNS configuration and for hostnameOverride.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchChars  = 2048
	maxHostOverride = 64
)

// identity checks a pod's names and its name resolution.
func (c checker) identity(spec *corev1.PodSpec) {
	if spec.Hostname != "" {
		c.name("spec.hostname", spec.Hostname, validation.IsDNS1123Label)
	}
	if spec.Subdomain != "" {
		c.name("spec.subdomain", spec.Subdomain, validation.IsDNS1123Label)
	}
	if spec.ServiceAccountName != "" {
		c.name("spec.serviceAccountName", spec.ServiceAccountName, validation.IsDNS1123Subdomain)
	}
	if spec.PriorityClassName != "" {
		c.name("spec.priorityClassName", spec.PriorityClassName, validation.IsDNS1123Subdomain)
	}
	for i := range spec.Tolerations {
		c.toleration(&spec.Tolerations[i], fmt.Sprintf("spec.tolerations[%d].", i))
	}
	if override := spec.HostnameOverride; override != nil {
		c.name("spec.hostnameOverride", *override, validation.IsDNS1123Subdomain)
		if len(*override) > maxHostOverride {
			c.fault("spec.hostnameOverride", "must be no more than %d characters", maxHostOverride)
		}
		if isTrue(spec.SetHostnameAsFQDN) {
			c.fault("spec.hostnameOverride", "cannot be together with setHostnameAsFQDN")
		}
	}
	for i, alias := range spec.HostAliases {
		at := fmt.Sprintf("spec.hostAliases[%d].", i)
		if !isIP(alias.IP) {
			c.fault(at+"ip", "%q is not an IP address", alias.IP)
		}
		for j, name := range alias.Hostnames {
			c.name(fmt.Sprintf("%shostnames[%d]", at, j), name, validation.IsDNS1123Subdomain)
		}
	}
	c.dns(spec)
}

func (c checker) dns(spec *corev1.PodSpec) {
	oneOf(c, "spec.dnsPolicy", spec.DNSPolicy, corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	config := spec.DNSConfig
	if spec.DNSPolicy == corev1.DNSNone && (config == nil || len(config.Nameservers) == 0) {
		c.fault("spec.dnsConfig", "must provide at least one DNS nameserver when dnsPolicy is None")
	}
	if config == nil {
		return
	}
	const at = "spec.dnsConfig."
	if len(config.Nameservers) > maxNameservers {
		c.fault(at+"nameservers", "must not have more than %d nameservers", maxNameservers)
	}
	for i, server := range config.Nameservers {
		if !isIP(server) {
			c.fault(fmt.Sprintf("%snameservers[%d]", at, i), "%q is not an IP address", server)
		}
	}
	if len(config.Searches) > maxSearches {
		c.fault(at+"searches", "must not have more than %d search paths", maxSearches)
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchChars {
		c.fault(at+"searches", "must not have more than %d characters (including spaces) in the search list", maxSearchChars)
	}
	for i, search := range config.Searches {
		if search == "." {
			continue // the root domain alone
		}
		c.name(fmt.Sprintf("%ssearches[%d]", at, i), strings.TrimSuffix(search, "."), validation.IsDNS1123SubdomainWithUnderscore)
	}
	for i, option := range config.Options {
		if option.Name == "" {
			c.fault(fmt.Sprintf("%soptions[%d].name", at, i), "is required")
		}
		// They become a line of a file.
		if strings.ContainsAny(option.Name, " \t\n") || option.Value != nil && strings.ContainsAny(*option.Value, " \t\n") {
			c.fault(fmt.Sprintf("%soptions[%d]", at, i), "holds a space")
		}
	}
}

func isIP(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && address.Zone() == ""
}

func isTrue(value *bool) bool { return value != nil && *value }

// toleration checks a toleration like the API server, although no scheduler uses it here.
func (c checker) toleration(t *corev1.Toleration, at string) {
	if t.Key != "" {
		c.name(at+"key", t.Key, validation.IsQualifiedName)
	} else if t.Operator != corev1.TolerationOpExists {
		c.fault(at+"operator", "must be Exists where the key is empty")
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		for _, message := range validation.IsValidLabelValue(t.Value) {
			c.fault(at+"operator", "%q: %s", t.Value, message)
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			c.fault(at+"operator", "value must be empty where the operator is Exists")
		}
	default:
		oneOf(c, at+"operator", t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		c.fault(at+"effect", "must be NoExecute where tolerationSeconds is set")
	}
	if t.Effect != "" {
		oneOf(c, at+"effect", t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
	}
}
