package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/engine/volumes"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// fakeGuest stores the files of volumes like the agent.
type fakeGuest struct {
	shimv1.ExtensionClient
	mu      sync.Mutex
	digest  string
	staged  map[string]string
	files   map[string]string // published
	modes   map[string]uint32
	group   int
	calls   int
	largest int
	fail    int // the next calls fail
	changed chan struct{}
}

func newFakeGuest() *fakeGuest { return &fakeGuest{changed: make(chan struct{}, 100)} }

func (g *fakeGuest) Files(_ context.Context, call *shimv1.FilesRequest) (*shimv1.FilesResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail > 0 {
		g.fail--
		return nil, errInjected
	}
	g.calls++
	var r agentv1.Files
	if err := json.Unmarshal(call.Files, &r); err != nil {
		return nil, err
	}
	if r.Begin {
		g.staged, g.modes = map[string]string{}, map[string]uint32{}
	}
	size := 0
	for _, f := range r.Entries {
		g.staged[f.Path] += string(f.Data)
		g.modes[f.Path] = f.Mode
		size += len(f.Data)
	}
	g.largest = max(g.largest, size)
	if r.Commit {
		g.group = r.Group
		g.digest, g.files = r.Digest, maps.Clone(g.staged)
		g.changed <- struct{}{}
	}
	return &shimv1.FilesResponse{Digest: g.digest}, nil
}

func (g *fakeGuest) published() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.files)
}

func (g *fakeGuest) wait(t *testing.T) {
	t.Helper()
	select {
	case <-g.changed:
	case <-time.After(20 * time.Second):
		t.Fatal("the guest's files do not change")
	}
}

var errInjected = errors.New("injected")

// noVMs has no VMs.
type noVMs struct{ vms.Source }

func (noVMs) End(context.Context, string) error { return nil }
func (noVMs) Reap(context.Context) error        { return nil }
func (noVMs) Close() error                      { return nil }

// bareEngine returns an engine that starts no pod.
func bareEngine(t *testing.T) *Engine {
	t.Helper()
	root, err := os.MkdirTemp("", "bk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	e, err := Open(t.Context(), Options{
		Roots: dirs.Roots{Data: filepath.Join(root, "d"), State: filepath.Join(root, "s")}, Instance: "test",
		HostPaths: []string{os.TempDir()}, Shim: "/no/shim", Guest: guest.Bundle{Dir: "/no/guest"}, VMs: noVMs{},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// barePod returns a ready pod of e with ext as its shim.
func barePod(e *Engine, ext shimv1.ExtensionClient) *pod {
	p := newPod(e, &store.Pod{ID: store.NewID(), Phase: store.Ready})
	p.conn = &link.Conn{Ext: ext, Done: make(chan struct{}), Close: func() error { return nil }}
	return p
}

// podWithGuest returns a pod with a guest, of an engine without other pods.
func podWithGuest(t *testing.T) (*pod, *fakeGuest) {
	t.Helper()
	e, guest := bareEngine(t), newFakeGuest()
	p := barePod(e, guest)
	if err := e.store.MakePod(p.id); err != nil {
		t.Fatal(err)
	}
	return p, guest
}

// write writes a volume as a kubelet does, and returns its path.
func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	dir = filepath.Join(dir, "kubernetes.io~configmap", "v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var set []atomicdir.File
	for path, text := range files {
		set = append(set, atomicdir.File{Path: path, Mode: 0o640, Data: []byte(text)})
	}
	if _, err := atomicdir.Write(root, set); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mounting(paths ...string) []store.Files {
	var out []store.Files
	for _, path := range paths {
		out = append(out, store.Files{Name: filepath.Base(path), Dir: path})
	}
	return out
}

// TestVolumesAreSentAndFollowed checks that files are sent in pieces, once for all containers, and again after
// changes, until that succeeds.
func TestVolumesAreSentAndFollowed(t *testing.T) {
	t.Parallel()
	p, guest := podWithGuest(t)
	dir := t.TempDir()
	large := string(make([]byte, 3*volumes.Piece+5))
	first := map[string]string{"a": "one", "d/large": large, "empty": ""}
	at := write(t, dir, first)
	if err := p.volumes.Ensure(t.Context(), mounting(at)); err != nil {
		t.Fatal(err)
	}
	guest.wait(t)
	if diff := cmp.Diff(first, guest.published()); diff != "" {
		t.Error(diff)
	}
	if guest.largest > volumes.Piece || guest.modes["a"] != 0o640 {
		t.Errorf("pieces of %d bytes, mode %o", guest.largest, guest.modes["a"])
	}
	calls := guest.calls
	if err := p.volumes.Ensure(t.Context(), mounting(at)); err != nil || guest.calls != calls+1 {
		t.Errorf("for another container: %d calls, %v", guest.calls-calls, err)
	}
	guest.mu.Lock()
	guest.fail = 2
	guest.mu.Unlock()
	second := map[string]string{"a": "two"}
	write(t, dir, second)
	guest.wait(t)
	if diff := cmp.Diff(second, guest.published()); diff != "" {
		t.Error(diff)
	}
	// One watch of the kernel is enough for all volumes.
	other := write(t, t.TempDir(), first)
	if err := p.volumes.Ensure(t.Context(), mounting(other)); err != nil {
		t.Fatal(err)
	}
	if all := p.e.watches.Watched(); len(all) != 2 {
		t.Errorf("watched by one: %q", all)
	}
	// A stopped pod follows no changes.
	if err := p.setState(func(r *store.Pod) { r.Phase = store.Stopped }); err != nil {
		t.Fatal(err)
	}
	if err := p.volumes.Ensure(t.Context(), mounting(at)); err == nil {
		t.Error("files are sent to a stopped pod")
	}
}

// TestVolumesAreFollowedByTheNextEngine checks that the next engine watches the volumes in the containers' records.
func TestVolumesAreFollowedByTheNextEngine(t *testing.T) {
	t.Parallel()
	p, guest := podWithGuest(t)
	dir := t.TempDir()
	at := write(t, dir, map[string]string{"a": "changed meanwhile"})
	files := mounting(at)
	files[0].Group = 77
	p.containers["c"] = &container{pod: p, Stored: store.Stored{Container: store.Container{Files: files}}}
	p.volumes.Resume(p.files())
	guest.wait(t)
	write(t, dir, map[string]string{"a": "two"})
	guest.wait(t)
	if diff := cmp.Diff(map[string]string{"a": "two"}, guest.published()); diff != "" {
		t.Error(diff)
	}
	if guest.group != 77 {
		t.Errorf("group %d", guest.group)
	}
}

// TestVolumesThatCannotBeFollowedYet checks that the next engine retries until it succeeds.
func TestVolumesThatCannotBeFollowedYet(t *testing.T) {
	t.Parallel()
	p, guest := podWithGuest(t)
	dir := t.TempDir()
	at := filepath.Join(dir, "kubernetes.io~configmap", "v")
	p.containers["c"] = &container{pod: p, Stored: store.Stored{Container: store.Container{Files: mounting(at)}}}
	p.volumes.Resume(p.files())
	for _, text := range []string{"one", "two"} {
		write(t, dir, map[string]string{"a": text})
		guest.wait(t)
		if diff := cmp.Diff(map[string]string{"a": text}, guest.published()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestVolumesThatCannotBeSent(t *testing.T) {
	t.Parallel()
	p, guest := podWithGuest(t)
	dir := t.TempDir()
	if err := p.volumes.Ensure(t.Context(), mounting(filepath.Join(dir, "kubernetes.io~secret/gone"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	empty := filepath.Join(dir, "kubernetes.io~secret/empty")
	if err := os.MkdirAll(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.volumes.Ensure(t.Context(), mounting(empty)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
	at := write(t, dir, map[string]string{"a": string(make([]byte, volumes.Limits.Bytes+1))})
	if err := p.volumes.Ensure(t.Context(), mounting(at)); !errors.Is(err, atomicdir.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if guest.calls > 0 {
		t.Errorf("%d calls", guest.calls)
	}
}
