package remote_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testremote"
)

// TestContract runs a pod's whole life over the socket.
func TestContract(t *testing.T) {
	t.Parallel()
	w, o := fake(t)
	p := serve(t, o)
	c := p.door("oci")
	r := request("c1")
	r.Ports = []*enginev1.Port{{PodPort: 80}}
	pod, err := c.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	dir := p.e.StateDir(pod.GetId())
	want := &enginev1.Pod{
		Id: pod.GetId(), Key: "c1", Record: []byte("\x00 of c1"), State: enginev1.Pod_READY, Ips: []string{"10.0.2.15"}, Directory: dir,
		ApiSocket:    filepath.Join(dir, "shim.sock"),
		StreamSocket: filepath.Join(dir, "stream.sock"),
		FilesSocket:  filepath.Join(dir, "files.sock"),
		Ports:        []*enginev1.Port{{HostIp: "127.0.0.1", HostPort: pod.GetPorts()[0].GetHostPort(), PodPort: 80, Protocol: "tcp"}},
	}
	same := func(name string, got testremote.Pod, err error) {
		t.Helper()
		if diff := cmp.Diff(want, got.Pod, protocmp.Transform()); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	same("start", pod, nil)
	if pod.GetPorts()[0].GetHostPort() == 0 {
		t.Error("the published port is missing")
	}
	again, err := c.Start(t.Context(), r)
	same("start again", again, err)
	adopted, err := c.Adopt(t.Context(), pod.GetId())
	same("adopt", adopted, err)
	adopted, err = c.AdoptKey(t.Context(), "c1")
	same("adopt by key", adopted, err)
	pods, err := c.List(t.Context())
	if err != nil || len(pods) != 1 {
		t.Fatalf("list: %v, %v", pods, err)
	}
	same("list", pods[0], nil)

	for range 2 {
		if err := c.Stop(t.Context(), pod.GetId()); err != nil {
			t.Fatal(err)
		}
	}
	stopped, err := c.Adopt(t.Context(), pod.GetId())
	want.State, want.ApiSocket, want.StreamSocket, want.FilesSocket = enginev1.Pod_STOPPED, "", "", ""
	want.Ips, want.Ports = stopped.GetIps(), stopped.GetPorts() // the last known ones
	same("adopt a stopped one", stopped, err)
	if _, err := c.Start(t.Context(), r); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("start over a stopped one: %v", err)
	}
	for range 2 {
		if err := c.Remove(t.Context(), pod.GetId()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.AdoptKey(t.Context(), "c1"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("adopt a removed one: %v", err)
	}
	if err := c.Stop(t.Context(), pod.GetId()); err != nil {
		t.Errorf("stop a removed one: %v", err)
	}
	w.Clean(t)
	enginetest.NothingLeft(t, o)
}

// TestWalls: doors cannot see or end each other's pods, nor those of the engine's own process, whatever their names.
func TestWalls(t *testing.T) {
	t.Parallel()
	_, o := fake(t)
	p := serve(t, o)
	oci, containerd := p.door("oci"), p.door("containerd")
	mine, theirs := start(t, oci, "k"), start(t, containerd, "k")
	if mine.GetId() == theirs.GetId() {
		t.Fatal("two doors share a pod")
	}
	own, err := p.e.StartPod(t.Context(), engine.PodRequest{Key: "oci/k"}) // the namespace is called oci
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{theirs.GetId(), own, mine.GetId()[:12]} {
		if _, err := oci.Adopt(t.Context(), id); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("adopt %s: %v", id, err)
		}
		if err := errors.Join(oci.Stop(t.Context(), id), oci.Remove(t.Context(), id)); err != nil {
			t.Errorf("a missing pod: %v", err)
		}
	}
	for _, pod := range p.e.Pods() {
		if !pod.Ready {
			t.Errorf("%s was ended by another door", pod.Key)
		}
	}
	if pods, err := oci.List(t.Context()); err != nil || len(pods) != 1 || pods[0].GetId() != mine.GetId() {
		t.Errorf("list: %v, %v", pods, err)
	}
	if pods, err := p.door("oc").List(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("list of a door without pods: %v, %v", pods, err)
	}
}

// TestFailures: each failure names its cause, matches an error class and leaves nothing behind.
func TestFailures(t *testing.T) {
	t.Parallel()
	w, o := fake(t)
	p := serve(t, o)
	c := p.door("oci")
	_, none := c.Adopt(t.Context(), "")
	for _, tc := range []struct {
		name   string
		change func(*enginev1.StartRequest)
		fails  string // a call of the world that fails
		err    error  // used instead of a start's error
		class  error
		says   string
	}{
		{name: "the shim", fails: "Start", says: "start the shim"},
		{name: "the network", fails: "Attach", says: "network"},
		{name: "the sandbox", fails: "CreateSandbox", says: "create the sandbox"},
		{name: "the VM", fails: "StartSandbox", says: "start the VM"},
		{name: "no key", change: func(r *enginev1.StartRequest) { r.Key = "" }, class: errdefs.ErrInvalidArgument, says: "key"},
		{
			name: "an unknown network", change: func(r *enginev1.StartRequest) { r.Network = "x" },
			class: errdefs.ErrInvalidArgument, says: "network",
		},
		{
			name: "a log elsewhere", change: func(r *enginev1.StartRequest) { r.LogDirectory = "/etc/x" },
			class: errdefs.ErrInvalidArgument, says: "/etc/x",
		},
		{
			name: "a sysctl", class: errdefs.ErrNotImplemented, says: "kernel.panic",
			change: func(r *enginev1.StartRequest) { r.Sysctls = map[string]string{"kernel.panic": "1"} },
		},
		{
			name: "more memory than the host's", class: errdefs.ErrResourceExhausted, says: "memory",
			change: func(r *enginev1.StartRequest) { r.Size = &enginev1.Size{MemoryLimit: 1 << 50} },
		},
		{
			name: "a record that is too large", class: errdefs.ErrInvalidArgument, says: "bytes",
			change: func(r *enginev1.StartRequest) { r.Record = make([]byte, enginev1.MaxRequest) },
		},
		{
			name: "a message that is too large", class: errdefs.ErrResourceExhausted, says: "maximum",
			change: func(r *enginev1.StartRequest) { r.Record = make([]byte, 5<<20) },
		},
		{name: "neither id nor key", err: none, class: errdefs.ErrInvalidArgument, says: "id or a key"},
		{name: "no id", err: c.Remove(t.Context(), ""), class: errdefs.ErrInvalidArgument, says: "id"},
		{name: "no door", err: testremote.New(o.Roots, "", nil).Stop(t.Context(), "x"), class: errdefs.ErrInvalidArgument, says: "door"},
	} {
		err := tc.err
		if err == nil {
			r := request("c")
			if tc.change != nil {
				tc.change(r)
			}
			w.Fail(tc.fails, enginetest.ErrInjected)
			_, err = c.Start(t.Context(), r)
			w.Fail(tc.fails, nil)
		}
		switch e := (*testremote.Error)(nil); {
		case !errors.As(err, &e):
			t.Errorf("%s: %v", tc.name, err)
		case tc.class != nil && !errors.Is(err, tc.class), tc.class == nil && status.Code(err) != codes.Unknown:
			t.Errorf("%s: class %v: %v", tc.name, status.Code(err), err)
		case !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	w.Clean(t)
	enginetest.NothingLeft(t, o)
}

// TestClientGoes: a start continues without its client, and the next client joins it.
func TestClientGoes(t *testing.T) {
	t.Parallel()
	w, o := fake(t)
	p := serve(t, o)
	c := p.door("oci")
	release := w.Block("StartSandbox")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Start(ctx, request("c")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without the client: %v", err)
	}
	release()
	pod := start(t, c, "c")
	if w.Starts() != 1 {
		t.Errorf("%d shims for one pod", w.Starts())
	}
	if err := c.Remove(t.Context(), pod.GetId()); err != nil {
		t.Error(err)
	}
}

// TestClientStarts: a client starts the engine if none is running, and finds the next one after it has ended.
func TestClientStarts(t *testing.T) {
	t.Parallel()
	_, o := fake(t)
	var p *process
	starts := 0
	c := testremote.New(o.Roots, "oci", func(context.Context, dirs.Roots) error {
		starts++
		p = serve(t, o)
		return nil
	})
	pod := start(t, c, "c")
	p.end()
	if adopted, err := c.AdoptKey(t.Context(), "c"); err != nil || adopted.GetId() != pod.GetId() {
		t.Errorf("by the next engine: %v, %v", adopted, err)
	}
	if starts != 2 {
		t.Errorf("%d engines were started", starts)
	}
	p.end()
	broken := errors.New("no engine today")
	c = testremote.New(o.Roots, "oci", func(context.Context, dirs.Roots) error { return broken })
	if err := c.Remove(t.Context(), pod.GetId()); !errors.Is(err, broken) {
		t.Errorf("if no engine can be started: %v", err)
	}
}
