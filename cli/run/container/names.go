package container

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// nameFlags set the pod's host name and name resolution.
type nameFlags struct {
	hostname                        string
	hosts, servers, search, options []string
}

func (f *nameFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.hostname, "hostname", "", "image: host name (default: the pod's name)")
	flags.StringArrayVar(&f.hosts, "add-host", nil, "image: line of /etc/hosts, NAME[;NAME…]:IP")
	flags.StringSliceVar(&f.servers, "dns", nil, "image: IP of a name server, instead of the host's")
	flags.StringSliceVar(&f.search, "dns-search", nil, "image: search domain of the resolver")
	flags.StringSliceVar(&f.options, "dns-option", nil, "image: option of resolv.conf, such as ndots:2")
}

// hostname matches a host name that the API accepts.
var hostname = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func (f *nameFlags) apply(p *podDocument) error {
	switch {
	case f.hostname == "":
	case len(f.hostname) > 63 || !hostname.MatchString(f.hostname):
		return fmt.Errorf("--hostname %q: must be at most 63 lower-case letters, digits, dashes and dots", f.hostname)
	case strings.Contains(f.hostname, "."):
		p.Spec.HostnameOverride = f.hostname
	default:
		p.Spec.Hostname = f.hostname
	}
	for _, text := range f.hosts {
		names, ip, _ := strings.Cut(text, ":")
		address, err := netip.ParseAddr(strings.Trim(ip, "[]"))
		if err != nil || names == "" {
			return fmt.Errorf("--add-host %q: must be NAME:IP; there is no name for the host, because pods cannot reach it", text)
		}
		p.Spec.HostAliases = append(p.Spec.HostAliases, hostAlias{address.String(), strings.Split(names, ";")})
	}
	return f.dns(p)
}

func (f *nameFlags) dns(p *podDocument) error {
	if len(f.servers)+len(f.search)+len(f.options) == 0 {
		return nil
	}
	config := &dnsConfig{Nameservers: f.servers, Searches: f.search}
	if len(f.servers) > 0 {
		p.Spec.DNSPolicy = "None"
	}
	for _, server := range f.servers {
		if _, err := netip.ParseAddr(server); err != nil {
			return fmt.Errorf("--dns %q: must be the IP of a name server", server)
		}
	}
	for _, text := range f.options {
		name, value, valued := strings.Cut(text, ":")
		option := dnsOption{Name: name}
		if valued {
			option.Value = &value
		}
		config.Options = append(config.Options, option)
	}
	p.Spec.DNSConfig = config
	return nil
}
