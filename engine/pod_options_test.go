package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// TestAdoptOptions checks that a new shim gets the pod's disk and the logs of running and new containers.
func TestAdoptOptions(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	p := newPod(e, putPod(t, e, store.NewID(), store.Ready))
	dir := t.TempDir()
	want := map[string]bool{"runs": true, "is made": true}
	for name, c := range map[string]store.Stored{
		"runs": {}, "has ended": {Exit: &store.Exit{}}, "has none": {}, "is elsewhere": {}, "is made": {}, "is made without": {},
	} {
		c.ID, c.Log = name, filepath.Join(dir, name)
		switch name {
		case "has none", "is made without":
			c.Log = ""
		case "is elsewhere":
			c.Log = "/nowhere/log"
		}
		set := p.containers
		if strings.HasPrefix(name, "is made") {
			set = p.making
		}
		set[name] = &container{pod: p, Stored: c}
	}
	for _, disk := range []bool{false, true} {
		if disk {
			if err := os.WriteFile(filepath.Join(e.store.Dir(p.id), "scratch.img"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o, closeFiles, err := p.adoptOptions(t.Context())
		if err != nil || (o.Scratch != nil) != disk || len(o.Logs) != len(want) {
			t.Fatalf("disk %v, logs %v: %v", o.Scratch, o.Logs, err)
		}
		closeFiles()
		for name, f := range o.Logs {
			if !want[name] || !errors.Is(f.Close(), os.ErrClosed) {
				t.Errorf("log of the container that %s", name)
			}
		}
		if disk && !errors.Is(o.Scratch.Close(), os.ErrClosed) {
			t.Error("the disk is left open")
		}
	}
	e.kinds.Networks = networks.New(func(network.Kind) (network.Provider, error) { return nil, errInjected })
	if _, _, err := p.adoptOptions(t.Context()); !errors.Is(err, errInjected) {
		t.Errorf("without a network: %v", err)
	}
}

// TestConsoleTail checks consoleTail with files that a hostile user may place there.
func TestConsoleTail(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	long := strings.Repeat("a", consoleTail) + strings.Repeat("b", consoleTail)
	for name, tc := range map[string]struct {
		do   func(path string) error
		want string
	}{
		"none":      {do: func(string) error { return nil }},
		"short":     {do: func(path string) error { return os.WriteFile(path, []byte("last words"), 0o600) }, want: "last words"},
		"long":      {do: func(path string) error { return os.WriteFile(path, []byte(long), 0o600) }, want: long[consoleTail:]},
		"directory": {do: func(path string) error { return os.Mkdir(path, 0o700) }},
		"pipe":      {do: func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		"link":      {do: func(path string) error { return os.Symlink("/etc/passwd", path) }},
	} {
		id := store.NewID()
		dir := e.store.StateDir(id)
		if err := errors.Join(os.MkdirAll(dir, 0o700), tc.do(filepath.Join(dir, layout.Console))); err != nil {
			t.Fatal(err)
		}
		if got := e.consoleTail(id); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, id := range []string{"", store.NewID()} {
		if got := e.consoleTail(id); got != "" {
			t.Errorf("consoleTail of an unknown pod: got %q, want none", got)
		}
	}
}

// TestGuestNetwork checks the configuration of a guest without an interface, and the MAC address if the network has
// none.
func TestGuestNetwork(t *testing.T) {
	t.Parallel()
	if got := guestNetwork(idOf("1"), network.Attachment{}); got != nil {
		t.Errorf("%+v", got)
	}
	given := &agentv1.Network{MAC: "02:00:00:00:00:01"}
	if got := guestNetwork(idOf("1"), network.Attachment{Guest: given}); got.MAC != given.MAC {
		t.Errorf("%+v", got)
	}
	if got := guestNetwork(idOf("1"), network.Attachment{Guest: &agentv1.Network{}}); got.MAC == "" {
		t.Errorf("%+v", got)
	}
}

// TestUsage checks that the guest's numbers are bounded and limited to known containers, and that a stopped pod
// uses nothing.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name           string
		paused, noShim bool
		network        bool
		errs           errs
		code           codes.Code
		none           bool
	}{
		{name: "runs"},
		{name: "with a network", network: true},
		{name: "paused", paused: true, none: true},
		{name: "no shim", noShim: true, none: true},
		{name: "fails", errs: errs{"Stats": {errInjected}}, code: codes.Unknown, none: true},
	} {
		s := &scripted{errs: tc.errs}
		c := scriptedPod(t, s, ContainerRunning)
		s.stats = &agentv1.PodStats{
			Memory:     agentv1.Memory{Total: -1, Available: link.MaxCounter + 1},
			Containers: map[string]agentv1.Stats{"unknown": {}, c.ID: {At: time.Now(), Pids: 1 << 40, CPUUsec: 1 << 63}},
		}
		s.stats.Volumes = slices.Repeat([]agentv1.VolumeUsage{{Name: "v", Used: 7, Capacity: 1 << 63}}, agentv1.MaxVolumes+1)
		if tc.network {
			s.stats.Network = &agentv1.NetUsage{RxBytes: 1, TxBytes: 2}
		}
		c.pod.paused = tc.paused
		if tc.noShim {
			c.pod.conn = nil
		}
		m, err := c.pod.e.Meter(c.pod.id)
		if err != nil {
			t.Fatal(err)
		}
		u, err := m.Usage(t.Context())
		if codeOf(err) != tc.code || (u == nil) != tc.none {
			t.Errorf("%s: %+v, %v", tc.name, u, err)
		}
		if u == nil {
			continue
		}
		if (u.Network != nil) != tc.network || u.Memory.Total != 0 || u.Memory.Available != link.MaxCounter {
			t.Errorf("%s: %+v", tc.name, u)
		}
		if len(u.Volumes) != agentv1.MaxVolumes || u.Volumes[0] != (agentv1.VolumeUsage{Name: "v", Used: 7, Capacity: link.MaxCounter}) {
			t.Errorf("%s: %d volumes, %+v", tc.name, len(u.Volumes), u.Volumes[0])
		}
		if len(u.Containers) != 1 || u.Containers[0].Pids != link.MaxPids || u.Containers[0].CPU() < 0 {
			t.Errorf("%s: %+v", tc.name, u.Containers)
		}
	}
}

// TestTemplatesOfTheHost checks the VM configuration of a request, and the reasons in the list.
func TestTemplatesOfTheHost(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	reason := "find template k: " + template.ErrMiss.Error() + ": it is the first"
	e.kinds.VMs = anyVMs{saved: []vms.Saved{{Info: template.Info{Key: "k", Reason: reason}}}}
	if all, err := e.Kinds().Templates(t.Context()); err != nil || len(all) != 1 || all[0].Reason != "it is the first" {
		t.Errorf("%+v, %v", all, err)
	}
	e.kinds.VMs = anyVMs{list: errInjected}
	if _, err := e.Kinds().Templates(t.Context()); !errors.Is(err, errInjected) {
		t.Errorf("%v", err)
	}
	for _, tc := range []struct {
		name    string
		vms     anyVMs
		network error
		kind    network.Kind
		asked   network.Kind
		fails   bool
	}{
		{name: "default", asked: network.KindUser},
		{name: "none", kind: network.KindNone, asked: network.KindNone},
		{name: "no network", network: errInjected, asked: network.KindUser, fails: true},
		{name: "no accelerator", vms: anyVMs{accel: errInjected}, asked: network.KindUser, fails: true},
		{name: "cannot be built", vms: anyVMs{template: errInjected}, asked: network.KindUser, fails: true},
	} {
		var asked network.Kind
		e.kinds.VMs = tc.vms
		e.kinds.Networks = networks.New(func(kind network.Kind) (network.Provider, error) { asked = kind; return network.None{}, tc.network })
		key, err := e.Kinds().Ensure(t.Context(), kinds.Request{VCPUs: 1, Network: string(tc.kind)})
		if errors.Is(err, errInjected) != tc.fails || (key == "key") == tc.fails || asked != tc.asked {
			t.Errorf("%s: %q of %q, %v", tc.name, key, asked, err)
		}
	}
}

// anyVMs provides any template at once, or fails.
type anyVMs struct {
	noVMs
	accel, template error
	saved           []vms.Saved
	list            error
}

func (v anyVMs) Template(context.Context, hypervisor.VMConfig, func()) (*vms.Template, error) {
	return &vms.Template{Key: "key", Release: func() {}}, v.template
}

func (v anyVMs) Accel(_ context.Context, a hypervisor.Accel) (hypervisor.Accel, string, error) {
	return a, "", v.accel
}

func (v anyVMs) List(context.Context) ([]vms.Saved, error) { return v.saved, v.list }

func (v anyVMs) End(context.Context, string) error { return nil }
