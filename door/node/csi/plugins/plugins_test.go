package plugins

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/testkube/testcsi"
)

// world is a Watcher of a directory.
type world struct {
	t    *testing.T
	root string
	came chan Plugin
	went chan string

	mu     sync.Mutex
	refuse error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, root: root, came: make(chan Plugin, 10), went: make(chan string, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	watcher := New(Options{Dir: filepath.Join(root, "plugins_registry"), Root: root, Register: w.register})
	done := make(chan error, 1)
	go func() { done <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) register(_ context.Context, p Plugin) (*Registration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return nil, w.refuse
	}
	w.came <- p
	return &Registration{Unregister: func() { w.went <- p.Name }}, nil
}

func (w *world) refuses(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

// word waits for what a plugin is told.
func word(ctx context.Context, t *testing.T, f *testcsi.Fake) *registration.RegistrationStatus {
	t.Helper()
	got, err := f.Word(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestComesAndGoes: a plugin is registered while its socket is there, and one that comes again anew.
func TestComesAndGoes(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t)
	for range 2 {
		f := &testcsi.Fake{}
		stop := f.Serve(t, w.root, "one.testcsi")
		if got := word(ctx, t, f); !got.GetPluginRegistered() {
			t.Errorf("told: %v", got)
		}
		endpoint := filepath.Join(w.root, "plugins/one.testcsi/csi.sock")
		if p := <-w.came; p.Name != "one.testcsi" || p.Endpoint != endpoint || p.Versions[0] != "1.0.0" {
			t.Errorf("%+v", p)
		}
		stop()
		select {
		case name := <-w.went:
			if name != "one.testcsi" {
				t.Errorf("%s went", name)
			}
		case <-ctx.Done():
			t.Fatal("it stays registered")
		}
	}
}

// TestNoEndpoint: a plugin that tells no endpoint serves at the socket of its registration.
func TestNoEndpoint(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t)
	f := &testcsi.Fake{Info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: "x", SupportedVersions: []string{"1.0.0"}}}
	f.Serve(t, w.root, "one.testcsi")
	if got := word(ctx, t, f); !got.GetPluginRegistered() {
		t.Fatalf("told: %v", got)
	}
	if p := <-w.came; p.Endpoint != filepath.Join(w.root, "plugins_registry", "one.testcsi.sock") {
		t.Errorf("%+v", p)
	}
}

// TestDirectory: the plugins of a directory that is removed go, and those of the one that is made in its place come.
func TestDirectory(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t)
	first, second := &testcsi.Fake{}, &testcsi.Fake{}
	first.Serve(t, w.root, "one.testcsi")
	word(ctx, t, first)
	<-w.came
	if err := os.RemoveAll(filepath.Join(w.root, "plugins_registry")); err != nil {
		t.Fatal(err)
	}
	<-w.went
	second.Serve(t, w.root, "two.testcsi")
	if got := word(ctx, t, second); !got.GetPluginRegistered() {
		t.Errorf("told: %v", got)
	}
}

// TestReplaced: a socket that another process has put into the place of one is another plugin, although nobody saw the
// first one go.
func TestReplaced(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t)
	first, second := &testcsi.Fake{}, &testcsi.Fake{}
	first.Serve(t, w.root, "one.testcsi")
	word(ctx, t, first)
	<-w.came
	second.Serve(t, w.root, "two.testcsi")
	word(ctx, t, second)
	<-w.came
	registry := filepath.Join(w.root, "plugins_registry")
	if err := os.Rename(filepath.Join(registry, "two.testcsi.sock"), filepath.Join(registry, "one.testcsi.sock")); err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{<-w.went: true, <-w.went: true}
	if p := <-w.came; p.Name != "two.testcsi" || !gone["one.testcsi"] || !gone["two.testcsi"] {
		t.Errorf("%+v came, %v went", p, gone)
	}
}

// TestRefused: what a plugin may not be is told it, once and for all, and so is what cannot be registered now, which is then
// tried again.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := func(path string) string { return filepath.Join(w.root, path) }
	for name, tc := range map[string]struct {
		info *registration.PluginInfo
		want string
	}{
		"device plugin": {&registration.PluginInfo{Type: registration.DevicePlugin, Name: "x"}, `type "DevicePlugin" are not supported`},
		"DRA plugin":    {&registration.PluginInfo{Type: registration.DRAPlugin, Name: "x"}, `type "DRAPlugin" are not supported`},
		"path as name":  {&registration.PluginInfo{Type: "CSIPlugin", Name: "../x", Endpoint: in("s")}, "not like one of DNS"},
		"no name":       {&registration.PluginInfo{Type: "CSIPlugin", Endpoint: in("s")}, "not like one of DNS"},
		"long name":     {&registration.PluginInfo{Type: "CSIPlugin", Name: strings.Repeat("x", 64), Endpoint: in("s")}, "not like one of DNS"},
		"outside":       {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: "/run/x.sock"}, "no path of a socket below"},
		"up":            {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("a") + "/../../x"}, "no path of a socket below"},
		"long path": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in(strings.Repeat("p", 107))},
			"no path of a socket below"},
		"versions": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("s"),
			SupportedVersions: make([]string, 33)}, "33 versions"},
		"version": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("s"),
			SupportedVersions: []string{strings.Repeat("1", 33)}}, "33 characters"},
		"no socket": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("s")}, "no such file"},
		"directory": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("plugins_registry")}, "is no socket"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testdeadline.Context(t, 5*time.Second)
			f := &testcsi.Fake{Info: tc.info}
			stop := f.Serve(t, w.root, "hostile.testcsi")
			defer stop()
			if got := word(ctx, t, f); got.GetPluginRegistered() || !strings.Contains(got.GetError(), tc.want) {
				t.Errorf("told: %v", got)
			}
		})
	}
	select {
	case p := <-w.came:
		t.Errorf("%+v is registered", p)
	default:
	}
}

// TestAgain: what fails is tried again while the socket is there, also where nobody answers.
func TestAgain(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t)
	w.refuses(errors.New("a moment's fault"))
	f := &testcsi.Fake{}
	stop := f.Serve(t, w.root, "one.testcsi")
	if got := word(ctx, t, f); got.GetPluginRegistered() || !strings.Contains(got.GetError(), "a moment's fault") {
		t.Errorf("told: %v", got)
	}
	w.refuses(nil)
	if got := word(ctx, t, f); !got.GetPluginRegistered() {
		t.Errorf("told: %v", got)
	}
	stop()
	<-w.went
	dead, err := net.Listen("unix", filepath.Join(w.root, "plugins_registry", "dead.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close() // it accepts nobody
	g := &testcsi.Fake{}
	g.Serve(t, w.root, "two.testcsi")
	if got := word(ctx, t, g); !got.GetPluginRegistered() {
		t.Errorf("beside one that is silent: %v", got)
	}
}

// TestHuge: a plugin that tells more than it may is no plugin, and does no harm to others.
func TestHuge(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t)
	huge := &testcsi.Fake{Info: &registration.PluginInfo{Type: "CSIPlugin", Name: strings.Repeat("x", 2*maxMessage)}}
	huge.Serve(t, w.root, "huge.testcsi")
	f := &testcsi.Fake{}
	f.Serve(t, w.root, "one.testcsi")
	if got := word(ctx, t, f); !got.GetPluginRegistered() || (<-w.came).Name != "one.testcsi" {
		t.Errorf("told: %v", got)
	}
}
