// Package cri tests the door for kubelets on a node with a CNI bridge, in a network namespace of the tests' own.
package cri

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	door "github.com/bulkhead-project/bulkhead/door/cri"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/network/cni"
)

func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }

// node is a host with a bridge and a door.
type node struct {
	critest.Client
	o    door.Options
	data string // the plugins' state
	logs string
}

func newNode(t *testing.T, forks bool) *node {
	t.Helper()
	n := &node{data: t.TempDir(), logs: t.TempDir()}
	conf := t.TempDir()
	testnet.WriteBridge(t, conf, n.data)
	o := enginetest.Real(t, forks)
	o.Network, o.CNI = nil, &cni.Options{Conf: conf, Bin: []string{testnet.Plugins}}
	n.o = door.Options{
		Roots: o.Roots, Kubelet: t.TempDir(), Socket: filepath.Join(o.Roots.State, "cri.sock"),
		Logs: append(o.HostPaths, n.logs), Engine: o, Logger: o.Logger,
	}
	n.Client = critest.Dial(t, n.o.Socket)
	return n
}

// serve runs a door until the end of the test or a call of the returned function.
func (n *node) serve(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- door.Run(ctx, n.o, func() { close(ready) }) }()
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the door returned %v", err)
			}
		case <-time.After(testdeadline.For(time.Minute)):
			t.Error("the door does not stop")
		}
	}
	t.Cleanup(end)
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	return end
}

// nothingLeft checks that pods have left nothing.
func (n *node) nothingLeft(t *testing.T) {
	t.Helper()
	if leases := testnet.Leases(t, n.data); len(leases) > 0 {
		t.Errorf("addresses left: %v", leases)
	}
	if held, err := os.ReadDir("/run/netns"); err != nil || len(held) > 0 {
		t.Errorf("namespaces left: %v, %v", held, err)
	}
	records, err := filepath.Glob(filepath.Join(n.o.Roots.Data, "cni", "*", "*.json"))
	if err != nil || len(records) > 0 {
		t.Errorf("records left: %v, %v", records, err)
	}
	if rules, err := exec.Command("iptables-save").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, rules)
	}
}
