package confine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The size of a ruleset with one, two and three fields, in bytes.
const (
	files    = 8
	network  = 16
	complete = 24
)

// TestVersions: each version of Landlock is asked only for what it supports, and the rest is named.
func TestVersions(t *testing.T) {
	noTCP := Policy{NoTCP: true}
	const first = uint64(1<<13 - 1)
	const refer, truncate = uint64(unix.LANDLOCK_ACCESS_FS_REFER), uint64(unix.LANDLOCK_ACCESS_FS_TRUNCATE)
	for _, tc := range []struct {
		name    string
		abi     int
		policy  Policy
		scopes  uint64
		rights  uint64
		tcp     bool
		scoped  uint64
		size    uintptr
		missing string
	}{
		{name: "the first", abi: 1, policy: noTCP, scopes: allScopes, rights: first, size: files,
			missing: "truncation, TCP, abstract sockets, signals"},
		{name: "moves", abi: 2, policy: noTCP, scopes: allScopes, rights: first | refer, size: files,
			missing: "truncation, TCP, abstract sockets, signals"},
		{name: "truncation", abi: 3, policy: noTCP, scopes: allScopes, rights: first | refer | truncate, size: files,
			missing: "TCP, abstract sockets, signals"},
		{name: "TCP", abi: 4, policy: noTCP, scopes: allScopes, rights: first | refer | truncate, tcp: true, size: network,
			missing: "abstract sockets, signals"},
		{name: "TCP that is wanted", abi: 4, rights: first | refer | truncate, size: files},
		{name: "TCP that is wanted of an older one", abi: 3, rights: first | refer | truncate, size: files},
		{name: "devices", abi: 5, policy: noTCP, scopes: allScopes, rights: first | refer | truncate, tcp: true, size: network,
			missing: "abstract sockets, signals"},
		{name: "one scope", abi: 5, scopes: unix.LANDLOCK_SCOPE_SIGNAL, rights: first | refer | truncate, size: files, missing: "signals"},
		{name: "the other scope", abi: 5, scopes: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, rights: first | refer | truncate, size: files,
			missing: "abstract sockets"},
		{
			name: "scopes", abi: 6, policy: noTCP, scopes: allScopes,
			rights: first | refer | truncate, tcp: true, scoped: allScopes, size: complete,
		},
		{name: "scopes alone", abi: 6, scopes: allScopes, rights: first | refer | truncate, scoped: allScopes, size: complete},
		{name: "no scopes", abi: 6, rights: first | refer | truncate, size: files},
		{
			name: "a later one", abi: 9, policy: noTCP, scopes: allScopes,
			rights: first | refer | truncate, tcp: true, scoped: allScopes, size: complete,
		},
	} {
		attr, size := attributes(tc.abi, tc.policy, tc.scopes)
		if attr.Handled_access_fs != tc.rights || (attr.Handled_access_net != 0) != tc.tcp || attr.Scoped != tc.scoped || size != tc.size {
			t.Errorf("%s: %+v of %d bytes", tc.name, attr, size)
		}
		err := missing(tc.abi, tc.policy, tc.scopes)
		if tc.missing == "" && err != nil ||
			tc.missing != "" && (!errors.Is(err, ErrPartial) || !strings.Contains(err.Error(), "for "+tc.missing+", which")) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestSignalsThatStay: signals that QEMU needs are named if no rule limits them.
func TestSignalsThatStay(t *testing.T) {
	kvm := Policy{Signals: []uint32{uint32(unix.SIGUSR1)}}
	for abi, policies := range map[int]map[string]Policy{5: {"[10]": kvm, "": {}}, 6: {"": kvm}} {
		for want, policy := range policies {
			err := missing(abi, policy, allScopes)
			_, told, _ := strings.Cut(fmt.Sprint(err), "signals of the numbers ")
			if got, _, _ := strings.Cut(told, " to "); got != want {
				t.Errorf("version %d: %v", abi, err)
			}
		}
	}
}
