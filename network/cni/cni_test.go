package cni

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/network"
)

func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }

// node is the CNI setup of a node.
type node struct {
	*Provider
	conf, bin, data string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{conf: t.TempDir(), bin: t.TempDir(), data: t.TempDir()}
	n.Provider = New(Options{
		Conf: n.conf, Bin: []string{n.bin, testnet.Plugins}, Dir: filepath.Join(t.TempDir(), "cni"),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	t.Cleanup(n.Close)
	return n
}

// script makes a shell script the only plugin of the node's network.
func (n *node) script(t *testing.T, body string) {
	t.Helper()
	text := `{"cniVersion": "1.0.0", "name": "scripted", "plugins": [{"type": "scripted"}]}`
	if err := os.WriteFile(filepath.Join(n.conf, "05-scripted.conflist"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.bin, "scripted"), []byte("#!/bin/sh\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
}

var ids = 0

func request() network.Request {
	ids++
	return network.Request{ID: fmt.Sprintf("%064x", ids), Name: "p", Namespace: "default", UID: "u"}
}

// add attaches a pod and waits until that is complete.
func (n *node) add(t *testing.T, r network.Request) (network.Attachment, error) {
	t.Helper()
	ctx := testdeadline.Context(t, 30*time.Second)
	a, err := n.Attach(ctx, r)
	if a.Tap != nil {
		t.Cleanup(func() { a.Tap.Close() })
	}
	for _, l := range a.Listeners {
		t.Cleanup(func() { l.Close() })
	}
	if err == nil {
		err = a.Complete(ctx, &a)
	}
	t.Cleanup(func() { _ = network.CloseCards(a.Cards) })
	return a, err
}

func (n *node) nothingLeft(t *testing.T) {
	t.Helper()
	held, err := os.ReadDir(namespaces)
	if err != nil || len(held) > 0 {
		t.Errorf("namespaces left: %v, %v", held, err)
	}
	if records, err := filepath.Glob(filepath.Join(n.o.Dir, "*.json")); err != nil || len(records) > 0 {
		t.Errorf("records left: %v, %v", records, err)
	}
	if leases := testnet.Leases(t, n.data); len(leases) > 0 {
		t.Errorf("addresses left: %v", leases)
	}
}

// TestBridge: a pod has the plugins' addresses, routes and MTU, of IPv4 and IPv6, and releases them.
func TestBridge(t *testing.T) {
	n := newNode(t)
	testnet.WriteBridge(t, n.conf, n.data)
	if err := n.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := request()
	a, err := n.add(t, r)
	if err != nil {
		t.Fatal(err)
	}
	if a.Guest.MAC == "" || a.Tap == nil {
		t.Errorf("no card: %+v", a)
	}
	a.Guest.MAC = ""
	want := &agentv1.Network{
		MTU: 1400, Addresses: []string{"10.88.0.2/16", "fd00:88::2/64"},
		Routes: []agentv1.Route{
			{Destination: "0.0.0.0/0", Gateway: "10.88.0.1"}, {Destination: "::/0", Gateway: "fd00:88::1", Metric: 1024},
		},
	}
	if diff := cmp.Diff(want, a.Guest); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(a.IPs, []string{"10.88.0.2", "fd00:88::2"}) {
		t.Errorf("addresses %q", a.IPs)
	}
	again, err := n.Attach(t.Context(), r)
	if err != nil || again.Tap != nil || again.Complete != nil {
		t.Errorf("attached twice: %+v, %v", again, err)
	}
	for range 2 {
		if err := n.Detach(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
	}
	n.nothingLeft(t)
}

// TestReload: the next pod uses the first configuration by name, and a broken one is skipped.
func TestReload(t *testing.T) {
	n := newNode(t)
	if err := n.Status(t.Context()); !errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), n.conf) {
		t.Errorf("without a configuration: %v", err)
	}
	if _, err := n.Attach(t.Context(), request()); !errors.Is(err, ErrNotReady) {
		t.Errorf("attach without a configuration: %v", err)
	}
	broken := filepath.Join(n.conf, "00-broken.conflist")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Status(t.Context()); !errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), "00-broken") {
		t.Errorf("with a broken one: %v", err)
	}
	testnet.WriteBridge(t, n.conf, n.data)
	if err := n.Status(t.Context()); err != nil {
		t.Error(err)
	}
	alone := filepath.Join(n.conf, "03-alone.conf")
	if err := os.WriteFile(alone, []byte(`{"cniVersion": "0.4.0", "name": "alone", "type": "loopback"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(n.conf, "02-open.conf")
	if err := os.WriteFile(open, []byte(`{"cniVersion": "0.4.0", "name": "open", "type": "loopback"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o666); err != nil { // every user may write it
		t.Fatal(err)
	}
	if list, err := n.load(); err != nil || list.Name != "alone" || len(list.Plugins) != 1 {
		t.Errorf("a plugin alone: %+v, %v", list, err)
	}
	if err := os.Remove(alone); err != nil {
		t.Fatal(err)
	}
	n.script(t, `[ $CNI_COMMAND = DEL ] || { echo '{"code": 11, "msg": "come back later"}'; exit 1; }`)
	r := request()
	_, err := n.add(t, r)
	if err == nil || !strings.Contains(err.Error(), "come back later") {
		t.Errorf("the first by name is not used: %v", err)
	}
	if err := n.Detach(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
	n.nothingLeft(t)
}

// TestFailing checks failing plugins: a successful delete leaves nothing, and until then everything is kept.
func TestFailing(t *testing.T) {
	for name, tc := range map[string]struct{ script, want string }{
		"add fails":          {`[ $CNI_COMMAND = DEL ] || { echo '{"code": 7, "msg": "no room"}'; exit 1; }`, "no room"},
		"add says nothing":   {`[ $CNI_COMMAND = DEL ] || exit 3`, "exit status 3"},
		"add writes garbage": {`[ $CNI_COMMAND = DEL ] || { echo so what; echo why >&2; exit 1; }`, "why"},
		"no interface":       {`echo '{"cniVersion": "1.0.0"}'`, "no interface eth0"},
		"no address": {
			`[ $CNI_COMMAND = DEL ] || nsenter --net=$CNI_NETNS ip link add eth0 type veth peer name other
			 echo '{"cniVersion": "1.0.0"}'`, "it has no address",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.script(t, tc.script)
			r := request()
			_, err := n.add(t, r)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if err := n.Detach(t.Context(), r.ID); err != nil {
				t.Error(err)
			}
			n.nothingLeft(t)
		})
	}
}

// TestDeleteFails: an address that could not be released is released later, with the configuration of its pod.
func TestDeleteFails(t *testing.T) {
	n := newNode(t)
	testnet.WriteBridge(t, n.conf, n.data)
	r := request()
	if _, err := n.add(t, r); err != nil {
		t.Fatal(err)
	}
	n.cni = New(Options{Conf: n.conf, Bin: []string{n.bin}, Dir: n.o.Dir, Logger: n.o.Logger}).cni // no plugin is found
	if err := n.Detach(t.Context(), r.ID); err == nil {
		t.Error("deleted without a plugin")
	}
	if len(testnet.Leases(t, n.data)) != 2 || !holds(namespace(r.ID)) {
		t.Error("the record for the next try is gone")
	}
	// By then the node's network has changed, and the namespace is gone.
	n.script(t, "exit 1")
	if err := removeNamespace(namespace(r.ID)); err != nil {
		t.Fatal(err)
	}
	next := New(n.o)
	if err := next.Detach(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
	n.nothingLeft(t)
}

// hang attaches a pod with a plugin that hangs in a child, and calls do meanwhile. It checks that the pod's delete
// kills the plugin and that nothing is left.
func hang(t *testing.T, do func(n *node)) {
	t.Helper()
	n := newNode(t)
	never := filepath.Join(t.TempDir(), "never")
	n.script(t, "[ $CNI_COMMAND = DEL ] && exit 0\nmkfifo "+never+"; cat "+never+"; echo")
	r := request()
	ctx := testdeadline.Context(t, 30*time.Second)
	a, err := n.Attach(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Tap.Close()
	do(n)
	if err := n.Detach(ctx, r.ID); err != nil {
		t.Error(err)
	}
	if err := a.Complete(ctx, &a); err == nil {
		t.Error("complete")
	}
	n.nothingLeft(t)
}

// TestHanging: a plugin that hangs in a child is killed with it when its pod is abandoned.
func TestHanging(t *testing.T) { hang(t, func(*node) {}) }

// TestCapabilities: the arguments depend on the plugins' capabilities.
func TestCapabilities(t *testing.T) {
	n := newNode(t)
	n.script(t, "[ $CNI_COMMAND = DEL ]")
	ports := []network.Port{{HostPort: 80, PodPort: 8080, Protocol: "sctp"}}
	if _, err := n.Attach(t.Context(), network.Request{ID: "x", Ports: ports}); err == nil || !strings.Contains(err.Error(), "sctp") {
		t.Errorf("a port without a plugin for ports: %v", err)
	}
	if err := n.Detach(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	limit := network.Bandwidth{Egress: 1000}
	if _, err := n.Attach(t.Context(), network.Request{ID: "x", Bandwidth: limit}); !errors.Is(err, network.ErrNotSupported) {
		t.Errorf("a limit without a plugin for limits: %v", err)
	}
	if err := os.Remove(filepath.Join(n.conf, "05-scripted.conflist")); err != nil {
		t.Fatal(err)
	}
	testnet.WriteBridge(t, n.conf, n.data)
	list, err := n.load()
	if err != nil {
		t.Fatal(err)
	}
	args, left, err := capabilities(list, network.Request{Ports: ports, Bandwidth: limit, DNS: &network.DNS{}})
	want := map[string]any{
		"portMappings": []portMapping{{80, 8080, "sctp", ""}}, "bandwidth": bandwidth{EgressRate: 1000, EgressBurst: burst},
	}
	if diff := cmp.Diff(want, args); diff != "" || len(left) > 0 || err != nil {
		t.Errorf("%s, %v, %v", diff, left, err)
	}
	n.nothingLeft(t)
}

// TestSilence: a VM that still runs cannot send from addresses that are being released.
func TestSilence(t *testing.T) {
	n := newNode(t)
	seen := filepath.Join(t.TempDir(), "seen")
	n.script(t, `cd /; case $CNI_COMMAND in
ADD) nsenter --net=$CNI_NETNS sh -c 'ip link add eth0 type veth peer name other && ip addr add 10.1.2.3/24 dev eth0'
	echo '{"cniVersion": "1.0.0"}';;
DEL) nsenter --net=$CNI_NETNS ip -o link show tap0 >`+seen+`;;
esac`)
	r := request()
	if _, err := n.add(t, r); err != nil {
		t.Fatal(err)
	}
	if err := n.Detach(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(seen)
	if err != nil || !strings.Contains(string(got), "tap0") || strings.Contains(string(got), ",UP") {
		t.Errorf("the VM's tap: %s, %v", got, err)
	}
	n.nothingLeft(t)
}
