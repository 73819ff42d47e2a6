package remote_test

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testremote"
	"github.com/bulkhead-project/bulkhead/network"
)

// TestVM checks that a door gets a VM over the socket and talks to its shim, also through the next engine. Another door
// does not see the VM. The VM takes the place of the interfaces in a namespace of the door, whenever they appear.
func TestVM(t *testing.T) {
	if testing.Short() {
		t.Skip("starts VMs")
	}
	o := enginetest.Real(t, enginetest.Clones)
	o.Network = func(network.Kind) (network.Provider, error) { return network.Adopted{}, nil }
	p := serve(t, o)
	c := p.door("oci")
	at := adopted(t)
	r := request("c1")
	at.request(t, r)
	pod, err := c.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if pods, err := c.List(t.Context()); err != nil || len(pods) != 1 || pods[0].GetId() != pod.GetId() {
		t.Errorf("list: %v, %v", pods, err)
	}
	if pods, err := p.door("containerd").List(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("list of another door: %v, %v", pods, err)
	}
	if err := p.door("containerd").Remove(t.Context(), pod.GetId()); err != nil {
		t.Error(err)
	}
	first := talk(t, pod)
	at.update(t, c, pod)
	at.connect(t)
	at.update(t, c, pod)
	at.answers(t, "10.77.0.2")
	p.end()
	talk(t, pod) // no engine runs, and the pod keeps running
	at.answers(t, "10.77.0.2")

	p = serve(t, o)
	p.kept(t, 1)
	adopted, err := c.AdoptKey(t.Context(), "c1")
	if err != nil || adopted.GetId() != pod.GetId() || string(adopted.GetRecord()) != string(pod.GetRecord()) {
		t.Fatalf("adopt: %v, %v", adopted, err)
	}
	if now := talk(t, adopted); now != first {
		t.Errorf("the VM is process %d, and was %d", now, first)
	}
	at.further(t)
	at.update(t, c, pod)
	at.answers(t, "10.78.0.2")
	at.answers(t, "10.77.0.2")
	at.disconnect(t)
	at.update(t, c, pod)
	at.answers(t, "10.78.0.2")
	if got, err := c.Adopt(t.Context(), pod.GetId()); err != nil || !slices.Equal(got.GetIps(), []string{"10.78.0.2"}) {
		t.Errorf("addresses of the pod: %q, %v", got.GetIps(), err)
	}
	at.leave(t)
	if err := c.Remove(t.Context(), pod.GetId()); err != nil {
		t.Fatal(err)
	}
	p.kept(t, 0)
	if _, err := adopted.Shim(t.Context()); err == nil {
		t.Error("the shim of a removed pod answers")
	}
	if _, err := c.Adopt(t.Context(), pod.GetId()); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("adopt a removed one: %v", err)
	}
	p.end()
	enginetest.NothingLeft(t, o)
}

// talk asks the pod's shim for the VM's state, sends it a descriptor, and returns the PID of the VM's process.
func talk(t *testing.T, pod testremote.Pod) (vm uint32) {
	t.Helper()
	ctx := testdeadline.Context(t, time.Minute)
	shim, err := pod.Shim(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	st, err := shim.Extension.Status(ctx, &shimv1.StatusRequest{})
	if err != nil || st.GetState() != "running" || st.GetVmPid() == 0 {
		t.Fatalf("status: %v, %v", st, err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := pod.SendFile(ctx, "stdin", f); err != nil {
		t.Error(err)
	}
	return st.GetVmPid()
}
