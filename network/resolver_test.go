package network

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestResolverOfKinds: the name servers of pods of each kind of network, for different files of the host.
func TestResolverOfKinds(t *testing.T) {
	const stub, upstream = "nameserver 127.0.0.53\nsearch a.example\n", "nameserver 192.0.2.53\nnameserver 2001:db8::53\ndomain b.example\n"
	searches := func(domain string, servers ...string) DNS { return DNS{Servers: servers, Searches: []string{domain}} }
	for name, tc := range map[string]struct {
		files []string // of resolvConfs; a missing one does not exist
		want  map[Kind]DNS
	}{
		"a server": {files: []string{upstream}, want: map[Kind]DNS{
			KindNone: {}, KindUser: searches("b.example", "192.0.2.53"), KindCNI: searches("b.example", "192.0.2.53", "2001:db8::53"),
			KindHost: searches("b.example", "192.0.2.53", "2001:db8::53"),
		}},
		"a stub and its upstream": {files: []string{stub, upstream}, want: map[Kind]DNS{
			KindUser: searches("b.example", "192.0.2.53"), KindCNI: searches("b.example", "192.0.2.53", "2001:db8::53"),
			KindHost: searches("a.example", "127.0.0.53"),
		}},
		"a stub alone": {files: []string{stub}, want: map[Kind]DNS{
			KindUser: searches("a.example", hostDNS), KindHostLoopback: searches("a.example", userDNS, hostDNS),
			KindCNI: searches("a.example"), KindHost: searches("a.example", "127.0.0.53"),
		}},
		"none": {want: map[Kind]DNS{KindUser: {Servers: []string{hostDNS}}, KindCNI: {}, KindHost: {}}},
	} {
		t.Run(name, func(t *testing.T) {
			hostFiles(t, tc.files...)
			for kind, want := range tc.want {
				if diff := cmp.Diff(want, Resolver(kind), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: %s", kind, diff)
				}
			}
		})
	}
}

// TestHostNetworkResolver: a pod of the host's network reaches servers on the host's loopback through QEMU. The request
// is not changed.
func TestHostNetworkResolver(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		own  *DNS
		want []string
	}{
		"the file's":   {file: "nameserver 127.0.0.53\nnameserver 192.0.2.53\n", want: []string{userDNS, "192.0.2.53"}},
		"its own":      {file: "nameserver 192.0.2.53\n", own: &DNS{Servers: []string{"127.0.0.1"}}, want: []string{userDNS}},
		"none":         {want: []string{userDNS}},
		"own searches": {file: "nameserver 192.0.2.53\n", own: &DNS{Searches: []string{"a"}}, want: []string{"192.0.2.53"}},
	} {
		t.Run(name, func(t *testing.T) {
			hostFiles(t, tc.file)
			a, err := Host{}.Attach(t.Context(), Request{DNS: tc.own})
			if diff := cmp.Diff(tc.want, a.DNS.Servers); diff != "" || err != nil {
				t.Errorf("%v, %s", err, diff)
			}
			if tc.own != nil && len(tc.own.Servers) > 0 && tc.own.Servers[0] == userDNS {
				t.Error("the request's were changed")
			}
		})
	}
}

// hostFiles replaces the host's files by the given texts.
func hostFiles(t *testing.T, texts ...string) {
	t.Helper()
	before := resolvConfs
	t.Cleanup(func() { resolvConfs = before })
	dir := t.TempDir()
	resolvConfs = []string{filepath.Join(dir, "etc"), filepath.Join(dir, "run")}
	for i, text := range texts {
		if err := os.WriteFile(resolvConfs[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
