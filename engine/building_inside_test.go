package engine

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
)

// TestPlanFails checks that impossible requests fail before anything is created.
func TestPlanFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		r       PodRequest
		network error
		accel   error
		want    codes.Code
	}{
		{name: "plain"},
		{name: "all named", r: PodRequest{Network: NetworkNone, Accel: hypervisor.TCG}},
		{name: "another network", r: PodRequest{Network: "bridge"}, want: codes.InvalidArgument},
		{name: "another accelerator", r: PodRequest{Accel: "xen"}, want: codes.InvalidArgument},
		{name: "no network", network: errInjected, want: codes.Unknown},
		{name: "no accelerator", accel: errInjected, want: codes.Unknown},
	} {
		e := reapEngine(t, &scriptedShims{})
		e.kinds.VMs = anyVMs{accel: tc.accel}
		e.kinds.Networks = networks.New(func(network.Kind) (network.Provider, error) { return network.None{}, tc.network })
		if p, err := e.plan(t.Context(), tc.r); codeOf(err) != tc.want || (p == nil) != (err != nil) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestPredecessor checks that a pod takes over the disk of its newest stopped VM with emptyDirs.
func TestPredecessor(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	begun := time.Now()
	for _, p := range []struct {
		id, uid string
		age     int // in minutes
		volumes bool
		disk    bool
	}{
		{id: "1", uid: "u", age: 3, volumes: true, disk: true},
		{id: "2", uid: "u", age: 2, volumes: true, disk: true},
		{id: "3", uid: "u", age: 1, volumes: true},
		{id: "4", uid: "u", age: 1, disk: true},
		{id: "5", uid: "another", volumes: true, disk: true},
		{id: "6", uid: "another", volumes: true, disk: true},
		{id: "7", uid: "another", volumes: true, disk: true},
	} {
		r := putPod(t, e, idOf(p.id), store.Stopped)
		r.UID, r.Volumes, r.Created = p.uid, p.volumes, begun.Add(-time.Duration(p.age)*time.Minute)
		if p.disk {
			if err := os.WriteFile(filepath.Join(e.store.Dir(r.ID), "scratch.img"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e.hold(newPod(e, r))
	}
	next := &plan{PodRequest: PodRequest{Identity: Identity{UID: "u"}}}
	for range 20 { // pods have no order
		if p := e.predecessor(next); p == nil || p.id != idOf("2") {
			t.Fatalf("%+v", p)
		}
	}
	e.pods[idOf("4")].record.Phase = store.Ready
	if p := e.predecessor(next); p != nil {
		t.Errorf("predecessor of a pod with a running VM: got %s, want none", p.id)
	}
}

// TestInheritFails checks that a start fails if the predecessor's disk cannot be taken over.
func TestInheritFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx context.Context
		do  func(e *Engine, from *pod, id string) error
	}{
		"the pod is busy": {ctx, func(_ *Engine, from *pod, _ string) error { return from.acquire(t.Context()) }},
		"it cannot be undone": {t.Context(), func(e *Engine, _ *pod, id string) error {
			return os.Mkdir(filepath.Join(e.store.Dir(id), "journal"), 0o700)
		}},
	} {
		e := reapEngine(t, &scriptedShims{})
		from := newPod(e, putPod(t, e, idOf("1"), store.Stopped))
		f, err := e.disks.Make(t.Context(), from.id, disks.Default)
		if err != nil {
			t.Fatal(err)
		}
		b := &building{e: e, plan: &plan{}, from: from, record: store.Pod{ID: idOf("2")}}
		if err := errors.Join(f.Close(), e.store.MakePod(b.record.ID), tc.do(e, from, b.record.ID)); err != nil {
			t.Fatal(err)
		}
		if err := b.inherit(tc.ctx); err == nil || !e.disks.Has(from.id) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBuildGivesUp checks that build stops when its context ends.
func TestBuildGivesUp(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := &building{e: e, plan: &plan{PodRequest: PodRequest{Key: "p"}}}
	if p, err := b.build(ctx); p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if names, err := e.store.Names(); err != nil || len(names) > 0 {
		t.Errorf("left %v, %v", names, err)
	}
}

// TestStoreFails checks the error if the pod's directory cannot be created.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	putPod(t, e, idOf("1"), store.Stopped)
	for name, b := range map[string]*building{
		"is there already": {plan: &plan{}, record: store.Pod{ID: idOf("1")}},
		"logs elsewhere":   {plan: &plan{PodRequest: PodRequest{LogDirectory: "/nowhere/logs"}}, record: store.Pod{ID: idOf("2")}},
	} {
		b.e = e
		if err := b.store(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestAttachFails checks that no network is attached if its undo cannot be recorded.
func TestAttachFails(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	id := idOf("1")
	putPod(t, e, id, store.Starting)
	if err := os.Mkdir(filepath.Join(e.store.Dir(id), "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := e.attach(t.Context(), network.None{}, network.Request{ID: id}); err == nil || !strings.Contains(err.Error(), "journal") {
		t.Errorf("%v", err)
	}
}

// TestCards checks that the guest gets the pod's additional interfaces, and that the engine closes their taps.
func TestCards(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	tap, err := os.Create(filepath.Join(t.TempDir(), "tap"))
	if err != nil {
		t.Fatal(err)
	}
	b := &building{e: e, plan: &plan{}, record: store.Pod{ID: idOf("1")}, attached: network.Attachment{
		Cards: []network.Card{{Guest: &agentv1.Network{Name: "net1"}, Tap: tap}},
	}}
	if got := b.config().Cards; len(got) != 1 || got[0].Name != "net1" {
		t.Errorf("%+v", got)
	}
	if err := b.closeNetwork(); err != nil || !errors.Is(tap.Close(), os.ErrClosed) || b.attached.Cards != nil {
		t.Errorf("%v, %+v", err, b.attached.Cards)
	}
}

// TestBuildingIsReported checks that Building is called with the pod's UID.
func TestBuildingIsReported(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	b := &building{e: e, plan: &plan{PodRequest: PodRequest{Identity: Identity{UID: "u"}}}}
	b.template()
	var told []string
	e.o.Building = func(uid string) { told = append(told, uid) }
	b.template()
	if !slices.Equal(told, []string{"u"}) {
		t.Errorf("%q", told)
	}
}

// TestPublishPortFails checks that only an open listener can be sent.
func TestPublishPortFails(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s := &scripted{}
	for name, l := range map[string]net.Listener{"closed": closed, "without a descriptor": struct{ net.Listener }{closed}} {
		if err := publishPort(t.Context(), s.conn(), "port-80", network.Listener{Listener: l}); err == nil {
			t.Errorf("%s: published", name)
		}
	}
	s.same(t)
}

// TestCreateTaskFails checks that no task is created if the shim does not accept the log.
func TestCreateTaskFails(t *testing.T) {
	t.Parallel()
	s := &scripted{errs: errs{"SendFile": {errInjected}}}
	c := scriptedPod(t, s, ContainerCreated)
	r := ContainerRequest{Stdio: containerv1.Log{File: filepath.Join(t.TempDir(), "log")}}
	if err := c.createTask(t.Context(), c.pod.conn, r, nil, ""); !errors.Is(err, errInjected) {
		t.Errorf("%v", err)
	}
	s.same(t, "SendFile log-"+c.ID)
}
