// Package guestfiles generates a guest's files and settings for its names and addresses.
package guestfiles

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/network"
)

// maxHostname is the kernel's limit.
const maxHostname = 63

// Hostname returns the requested host name or the pod's name, cut to the kernel's limit.
func Hostname(name, podName string) string {
	if name == "" {
		name = podName
	}
	if len(name) > maxHostname {
		name = strings.TrimRight(name[:maxHostname], "-.")
	}
	return name
}

// Hosts returns the content of /etc/hosts.
func Hosts(hostname string, ips []string) string {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	if len(ips) == 0 {
		ips = []string{"127.0.0.1"}
	}
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, hostname)
	}
	return b.String()
}

// Resolv returns the content of /etc/resolv.conf.
func Resolv(dns network.DNS) string {
	var b strings.Builder
	if len(dns.Searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.Searches, " "))
	}
	for _, server := range dns.Servers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(dns.Options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.Options, " "))
	}
	return b.String()
}

// MAC returns a hardware address that is unique to the pod: locally administered, unicast, the rest from its random
// id.
func MAC(id string) string {
	raw, err := hex.DecodeString(id[:10])
	if err != nil {
		raw = make([]byte, 5)
	}
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", raw[0], raw[1], raw[2], raw[3], raw[4])
}
