package hostports

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/network"
)

// fake is a pod with a scripted list of ports.
type fake struct {
	lists     [][]agentv1.ListeningPort
	known     [][]agentv1.ListeningPort // arguments of its calls
	ports     []store.Port
	calls     []string
	unpublish error
}

var errEnd = errors.New("no more lists")

func (f *fake) Listening(_ context.Context, known agentv1.Listening) (next agentv1.Listening, err error) {
	f.known = append(f.known, known.Ports)
	if len(f.lists) == 0 {
		return next, errEnd
	}
	next.Ports = f.lists[0]
	f.lists = f.lists[1:]
	return next, nil
}

func (f *fake) Ports() []store.Port { return slices.Clone(f.ports) }

func (f *fake) SetPorts(ports []store.Port) error {
	f.ports = slices.Clone(ports)
	return nil
}

func (f *fake) Listen(_ context.Context, p network.Port) (network.Listener, error) {
	return listenOnHost(p)
}

func listenOnHost(p network.Port) (l network.Listener, err error) {
	all, err := network.Listen([]network.Port{p})
	if err == nil {
		l = all[0]
	}
	return l, err
}

func (f *fake) Publish(_ context.Context, l network.Listener) error {
	var at net.Addr
	if l.UDP != nil {
		at = l.UDP.LocalAddr()
	} else {
		at = l.Addr()
	}
	f.calls = append(f.calls, "+"+at.Network()+at.String())
	return l.Close()
}

func (f *fake) Unpublish(_ context.Context, p store.Port) error {
	f.calls = append(f.calls, "-"+strconv.Itoa(p.PodPort)+p.Protocol)
	return f.unpublish
}

// free returns unused ports of this host.
func free(t *testing.T, n int) (out []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	slices.Sort(out)
	return out
}

func TestSync(t *testing.T) {
	t.Parallel()
	n := free(t, 2)
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	has := taken.Addr().(*net.TCPAddr).Port
	var log strings.Builder
	f := &fake{lists: [][]agentv1.ListeningPort{
		{{Port: uint16(n[0])}, {Port: uint16(n[1]), Loopback: true}, {Port: uint16(has)}, {Port: 0}, {Port: uint16(n[1]), Datagrams: true}},
		{{Port: uint16(n[1]), Loopback: true}},
		nil,
	}}
	if err := Sync(t.Context(), f, rate.NewLimiter(rate.Inf, 0), slog.New(slog.NewTextHandler(&log, nil))); !errors.Is(err, errEnd) {
		t.Fatal(err)
	}
	first, second := strconv.Itoa(n[0]), strconv.Itoa(n[1])
	want := []string{
		"+tcp[::]:" + first, "+tcp127.0.0.1:" + second, "+udp[::]:" + second, "-" + first, "-" + second + "udp", "-" + second,
	}
	if !slices.Equal(f.calls, want) || len(f.ports) != 0 {
		t.Errorf("%q, and published are %v", f.calls, f.ports)
	}
	if !strings.Contains(log.String(), strconv.Itoa(has)) {
		t.Errorf("no log of a port in use: %s", &log)
	}
}

// TestGoesOn checks that another engine continues with the published ports, and ends those that are not in use any
// more.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	f := &fake{ports: []store.Port{
		{HostIP: "::", HostPort: 9, PodPort: 9, Protocol: UDP}, {HostIP: "::", HostPort: 81, PodPort: 81},
		{HostIP: "127.0.0.1", HostPort: 80, PodPort: 80},
	}}
	f.lists, f.unpublish = [][]agentv1.ListeningPort{{{Port: 80, Loopback: true}}}, errors.New("no")
	if err := Sync(t.Context(), f, rate.NewLimiter(rate.Inf, 0), slog.Default()); err == nil || errors.Is(err, errEnd) {
		t.Error(err)
	}
	want := []agentv1.ListeningPort{{Port: 80, Loopback: true}, {Port: 81}, {Port: 9, Datagrams: true}}
	if !slices.Equal(f.known[0], want) || len(f.ports) != 3 {
		t.Errorf("asked with %v", f.known)
	}
}

// TestMany checks that the number of a guest's ports is bounded.
func TestMany(t *testing.T) {
	t.Parallel()
	var all []agentv1.ListeningPort
	for i := range 65535 {
		all = append(all, agentv1.ListeningPort{Port: uint16(i + 1), Loopback: true})
	}
	for i := range 10 {
		all = append(all, agentv1.ListeningPort{Port: uint16(i + 1), Datagrams: true, Loopback: true})
	}
	if got := bounded(all); len(got) != 256+10 {
		t.Errorf("%d ports", len(got))
	}
}

// TestPace checks that a guest with endless changes is asked no faster than the pace.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		for range 10_000 {
			f.lists = append(f.lists, []agentv1.ListeningPort{{Port: 1, Datagrams: true}}, nil)
		}
		f.ports = nil
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := Sync(ctx, silent{f}, rate.NewLimiter(10, 50), slog.New(slog.DiscardHandler))
		if n := len(f.known); err == nil || n < 100 || n > 151 {
			t.Errorf("asked %d times in 10 s: %v", n, err)
		}
	})
}

// silent publishes nothing.
type silent struct{ *fake }

func (silent) Listen(_ context.Context, p network.Port) (network.Listener, error) {
	return listenOnHost(p)
}

func (silent) Publish(_ context.Context, l network.Listener) error { return l.Close() }
