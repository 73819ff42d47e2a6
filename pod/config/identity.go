package config

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxHostname is the length of a DNS label. Longer names are cut.
	maxHostname = 63
	// maxNodename is the kernel's limit for a host name.
	maxNodename = 64
	// defaultDomain is the default domain of clusters.
	defaultDomain = "cluster.local"
)

// names are the pod's host name, and the domain of its subdomain if it has one.
type names struct{ host, domain string }

func (o *Options) names() names {
	pod, domain := o.Pod, o.ClusterDomain
	if override := pod.Spec.HostnameOverride; override != nil {
		return names{host: *override}
	}
	n := names{host: pod.Spec.Hostname}
	if pod.Spec.HostNetwork && o.NodeName != "" {
		n.host = o.NodeName
	}
	if n.host == "" {
		n.host = pod.Name
	}
	n.host = cut(n.host)
	if pod.Spec.Subdomain != "" {
		if domain == "" {
			domain = defaultDomain
		}
		n.domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, domain)
	}
	return n
}

// cut shortens a pod's name to a valid host name.
func cut(name string) string {
	return strings.TrimRight(name[:min(len(name), maxHostname)], "-.")
}

// hostname returns the kernel's host name. It returns an error for a fully qualified name that is too long.
func (o *Options) hostname() (string, error) {
	n := o.names()
	if asFQDN := o.Pod.Spec.SetHostnameAsFQDN; asFQDN == nil || !*asFQDN || n.domain == "" {
		return n.host, nil
	}
	name := n.host + "." + n.domain
	if len(name) > maxNodename {
		return "", fmt.Errorf("the host name %s has %d characters, at most %d fit (unset setHostnameAsFQDN)", name, len(name), maxNodename)
	}
	return name, nil
}

// hostsFile returns the pod's /etc/hosts in the kubelet's form, because programs parse it.
func hostsFile(n names, ips []string, aliases []corev1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n")
	for _, entry := range []string{
		"127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback", "fe00::0\tip6-localnet",
		"fe00::0\tip6-mcastprefix", "fe00::1\tip6-allnodes", "fe00::2\tip6-allrouters",
	} {
		fmt.Fprintln(&b, entry)
	}
	if len(ips) == 0 {
		ips = []string{"127.0.0.1"} // without a network, the pod's name resolves to loopback
	}
	for _, ip := range ips {
		if n.domain != "" {
			fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, n.host, n.domain, n.host)
		} else {
			fmt.Fprintf(&b, "%s\t%s\n", ip, n.host)
		}
	}
	if len(aliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range aliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return b.String()
}
