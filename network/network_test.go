package network

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePorts(t *testing.T) {
	for _, tc := range []struct {
		in, err string
		want    []Port
	}{
		{in: "8080:80", want: []Port{{HostPort: 8080, PodPort: 80, Protocol: "tcp"}}},
		{in: "0:80", want: []Port{{PodPort: 80, Protocol: "tcp"}}},
		{in: "0.0.0.0:8080:80", want: []Port{{HostIP: "0.0.0.0", HostPort: 8080, PodPort: 80, Protocol: "tcp"}}},
		{in: "[::1]:8080:80", want: []Port{{HostIP: "::1", HostPort: 8080, PodPort: 80, Protocol: "tcp"}}},
		{in: "80", want: []Port{{PodPort: 80, Protocol: "tcp"}}},
		{in: "127.0.0.1::80", want: []Port{{HostIP: "127.0.0.1", PodPort: 80, Protocol: "tcp"}}},
		{in: "8080:80/tcp", want: []Port{{HostPort: 8080, PodPort: 80, Protocol: "tcp"}}},
		{in: "53:5353/UDP", want: []Port{{HostPort: 53, PodPort: 5353, Protocol: "udp"}}},
		{in: "8080-8081:80-81", want: []Port{
			{HostPort: 8080, PodPort: 80, Protocol: "tcp"}, {HostPort: 8081, PodPort: 81, Protocol: "tcp"},
		}},
		{in: "80-81/udp", want: []Port{{PodPort: 80, Protocol: "udp"}, {PodPort: 81, Protocol: "udp"}}},
		{in: "0:80-81", want: []Port{{PodPort: 80, Protocol: "tcp"}, {PodPort: 81, Protocol: "tcp"}}},
		{in: "x:80", err: "host port: must be a number"},
		{in: "8080:0", err: "pod port: must be a number from 1"},
		{in: "8080:65536", err: "pod port: must be a number"},
		{in: "8080:-1", err: "pod port: must be a number"},
		{in: "host:8080:80", err: "must be an IP"},
		{in: "", err: "pod port: must be a number"},
		{in: "8080:80/sctp", err: "must be tcp or udp"},
		{in: "8080-8082:80-81", err: "3 host ports for 2 pod ports"},
		{in: "8080:80-81", err: "1 host ports for 2 pod ports"},
		{in: "8080-8081:80", err: "2 host ports for 1 pod ports"},
		{in: "81-80", err: "empty"},
		{in: "0-1:80-81", err: "empty"},
		{in: "1-1000:1-1000", err: "more than 256"},
		{in: "65535-65536:1-2", err: "host port: must be a number"},
	} {
		got, err := ParsePorts(tc.in)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("ParsePorts(%q): error %v, want %q", tc.in, err, tc.err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("ParsePorts(%q): %v %s", tc.in, err, diff)
		}
	}
}

func TestListenIsAllOrNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := Listen([]Port{{PodPort: 80}})
	if err != nil {
		t.Fatal(err)
	}
	port := free[0].HostPort
	if port == 0 {
		t.Error("the chosen port is not returned")
	}
	if err := free[0].Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Listen([]Port{{HostPort: port, PodPort: 80}, {HostPort: taken.Addr().(*net.TCPAddr).Port, PodPort: 81}})
	if !errors.Is(err, ErrPortInUse) {
		t.Errorf("a taken port: %v", err)
	}
	again, err := Listen([]Port{{HostPort: port, PodPort: 80}})
	if err != nil {
		t.Fatalf("the first port was not closed: %v", err)
	}
	if err := again[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := Listen([]Port{{PodPort: 53, Protocol: "SCTP"}}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("SCTP: %v", err)
	}
	udp, err := Listen([]Port{{PodPort: 53, Protocol: "UDP"}})
	if err != nil || udp[0].UDP == nil || udp[0].HostPort == 0 {
		t.Fatalf("UDP: %+v, %v", udp, err)
	}
	_, err = Listen([]Port{{PodPort: 53, HostPort: udp[0].HostPort, Protocol: "UDP"}})
	if !errors.Is(err, ErrPortInUse) {
		t.Errorf("a taken port of UDP: %v", err)
	}
	if err := udp[0].Close(); err != nil {
		t.Error(err)
	}
}

func TestParseResolv(t *testing.T) {
	dns := parseResolv(strings.NewReader(
		"# stub\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver junk\n" +
			"domain c.example\nsearch a.example. . b.example\noptions ndots:2 edns0\nnameserver\n"))
	if diff := cmp.Diff([]string{"127.0.0.53", "192.0.2.53"}, dns.Servers); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a.example", "b.example"}, dns.Searches); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ndots:2", "edns0"}, dns.Options); diff != "" {
		t.Error(diff)
	}
}

// Without pasta no namespace can be created. No traffic may leave the pod then, and the reason is returned, unless the
// host's loopback was requested.
func TestUserFallsBack(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, tc := range []struct {
		loopback bool
		kind     Kind
	}{{false, KindRestricted}, {true, KindHostLoopback}} {
		u := NewUser(t.Context(), t.TempDir(), tc.loopback)
		kind, reason := u.Kind()
		if kind != tc.kind || !strings.Contains(reason, "passt") {
			t.Errorf("host loopback %v: kind %s, reason %q", tc.loopback, kind, reason)
		}
		if a, err := u.Attach(t.Context(), Request{ID: "pod"}); err != nil || a.Guest == nil {
			t.Errorf("attach: %v", err)
		}
	}
}

func TestDamagedRecordIsNotForgotten(t *testing.T) {
	dir := t.TempDir()
	n := &namespace{dir: dir}
	if err := os.WriteFile(n.path(), []byte(`{"holder":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(n.path()); err == nil {
		t.Error("a damaged record was read as an empty one")
	}
}
