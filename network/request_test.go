package network

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

// TestAttachGrantsTheRequest: both providers fulfil a request in the same way.
func TestAttachGrantsTheRequest(t *testing.T) {
	own := DNS{Servers: []string{"192.0.2.1"}, Searches: []string{"own.example"}}
	user := &User{kind: KindRestricted}
	for _, tc := range []struct {
		name     string
		provider Provider
		dns      *DNS
		want     DNS
	}{
		{name: "the network's", provider: user, want: Resolver(KindUser)},
		{name: "the pod's", provider: user, dns: &own, want: own},
		{name: "the pod's without servers", provider: user, dns: &DNS{Searches: []string{"a"}},
			want: DNS{Servers: Resolver(KindUser).Servers, Searches: []string{"a"}}},
		{name: "none", provider: None{}},
		{name: "none and the pod's", provider: None{}, dns: &own, want: own},
	} {
		a, err := tc.provider.Attach(t.Context(), Request{ID: "pod", DNS: tc.dns, Ports: []Port{{PodPort: 80}}})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, a.DNS); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
		if len(a.Listeners) != 1 || a.Listeners[0].PodPort != 80 || a.Listeners[0].HostPort == 0 {
			t.Errorf("%s: listeners %+v", tc.name, a.Listeners)
		}
		for _, l := range a.Listeners {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAttachRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	for _, tc := range []struct {
		name    string
		request Request
		want    error
	}{
		{name: "ingress", request: Request{Bandwidth: Bandwidth{Ingress: 1}}, want: ErrNotSupported},
		{name: "egress", request: Request{Bandwidth: Bandwidth{Egress: 1}}, want: ErrNotSupported},
		{name: "a taken port", request: Request{Ports: []Port{{HostPort: port, PodPort: 1}}}, want: ErrPortInUse},
		{name: "a port that fails", request: Request{Ports: []Port{{HostPort: port, PodPort: 1}}}, want: errdefs.ErrFailedPrecondition},
		{name: "a protocol", request: Request{Ports: []Port{{PodPort: 1, Protocol: "SCTP"}}}, want: ErrNotSupported},
		{name: "an address", request: Request{Ports: []Port{{HostIP: "192.0.2.1", PodPort: 1}}}, want: errdefs.ErrFailedPrecondition},
	} {
		for _, p := range []Provider{None{}, &User{kind: KindRestricted}} {
			if a, err := p.Attach(t.Context(), tc.request); !errors.Is(err, tc.want) || len(a.Listeners) > 0 {
				t.Errorf("%s, %T: %+v, %v, want %v", tc.name, p, a.Listeners, err, tc.want)
			}
		}
	}
	_, err = None{}.Attach(t.Context(), Request{Ports: []Port{{HostPort: port, PodPort: 1}}})
	if err == nil || !strings.HasPrefix(err.Error(), "publish 127.0.0.1:"+strconv.Itoa(port)) {
		t.Errorf("the port is not named: %v", err)
	}
}
