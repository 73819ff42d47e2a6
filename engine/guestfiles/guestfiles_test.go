package guestfiles_test

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine/guestfiles"
	"github.com/bulkhead-project/bulkhead/network"
)

// TestHostname checks that a hostname fits the kernel's limit, and that a shortened one ends in a letter or digit.
func TestHostname(t *testing.T) {
	long := strings.Repeat("x", 63)
	for _, tc := range []struct{ name, pod, want string }{
		{"host", "pod", "host"}, {"", "pod", "pod"}, {long, "pod", long}, {long + "y", "pod", long}, {"", long + "y", long},
		{long[1:] + "-", "pod", long[1:] + "-"}, // it fits, so it stays
		{strings.Repeat("x", 61) + "-.tail", "pod", strings.Repeat("x", 61)},
	} {
		if got := guestfiles.Hostname(tc.name, tc.pod); got != tc.want {
			t.Errorf("%q of pod %q: %q", tc.name, tc.pod, got)
		}
	}
}

// TestHosts checks that the pod's name resolves to its addresses, or to the loopback without any.
func TestHosts(t *testing.T) {
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	if got := guestfiles.Hosts("web", nil); got != local+"127.0.0.1\tweb\n" {
		t.Errorf("without a network: %q", got)
	}
	if got := guestfiles.Hosts("web", []string{"10.0.2.15", "fd00::5"}); got != local+"10.0.2.15\tweb\nfd00::5\tweb\n" {
		t.Errorf("with two addresses: %q", got)
	}
}

func TestResolv(t *testing.T) {
	for want, dns := range map[string]network.DNS{
		"":                       {},
		"nameserver 10.0.2.3\n":  {Servers: []string{"10.0.2.3"}},
		"search a b\n":           {Searches: []string{"a", "b"}},
		"options ndots:5 edns\n": {Options: []string{"ndots:5", "edns"}},
	} {
		if got := guestfiles.Resolv(dns); got != want {
			t.Errorf("%+v: %q", dns, got)
		}
	}
}

// TestMAC checks that the address comes from the id, and is locally administered and unicast.
func TestMAC(t *testing.T) {
	for id, want := range map[string]string{
		"0123456789abcdef": "02:01:23:45:67:89", "ffffffffff": "02:ff:ff:ff:ff:ff", "no number": "02:00:00:00:00:00",
	} {
		if got := guestfiles.MAC(id + " "); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
}
