package plugins

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube/testcsi"
)

// world is a Watcher of a directory.
type world struct {
	*Watcher
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
	w.Watcher = New(Options{Dir: filepath.Join(root, "plugins_registry"), Root: root, Register: w.register})
	return w
}

// runs starts the Watcher until the test's end.
func (w *world) runs() *world {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	w.t.Cleanup(func() {
		cancel()
		<-done
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

// statusOf waits for the registration status that a plugin gets.
func statusOf(ctx context.Context, t *testing.T, f *testcsi.Fake) *registration.RegistrationStatus {
	t.Helper()
	got, err := f.NextStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestComesAndGoes checks that a plugin is registered while its socket exists, and registered again with a new socket.
func TestComesAndGoes(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t).runs()
	for range 2 {
		f := &testcsi.Fake{}
		stop := f.Serve(t, w.root, "one.testcsi")
		if got := statusOf(ctx, t, f); !got.GetPluginRegistered() {
			t.Errorf("status: %v", got)
		}
		endpoint := filepath.Join(w.root, "plugins/one.testcsi/csi.sock")
		if p := <-w.came; p.Name != "one.testcsi" || p.Endpoint != endpoint || p.Versions[0] != "1.0.0" {
			t.Errorf("%+v", p)
		}
		stop()
		select {
		case name := <-w.went:
			if name != "one.testcsi" {
				t.Errorf("%s was unregistered", name)
			}
		case <-ctx.Done():
			t.Fatal("the plugin stays registered")
		}
	}
}

// TestWatchFails checks that plugins register from a directory that can be read but not watched, and from one that can
// be watched again.
func TestWatchFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// fail prevents the watch of the directory until mend is called.
		fail func(*world) (mend func())
		// reads is set if the directory can be read meanwhile.
		reads bool
	}{
		{name: "no inotify", reads: true, fail: func(w *world) func() {
			var mended atomic.Bool
			open := w.open
			w.open = func() (*fsnotify.Watcher, error) {
				if !mended.Load() {
					return nil, unix.EMFILE
				}
				return open()
			}
			return func() { mended.Store(true) }
		}},
		{name: "no directory", fail: func(w *world) func() {
			if err := os.WriteFile(w.o.Dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := os.Remove(w.o.Dir); err != nil {
					t.Error(err)
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx := testdeadline.Context(t, 10*time.Second)
			w := newWorld(t)
			var log testlog
			w.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			mend := tc.fail(w)
			w.runs()
			for strings.Count(log.String(), "watching the directory of plugins failed, retrying") < 2 {
				if ctx.Err() != nil {
					t.Fatalf("no retry; log: %s", log.String())
				}
				time.Sleep(10 * time.Millisecond)
			}
			register := func(name string) {
				f := &testcsi.Fake{}
				f.Serve(t, w.root, name)
				if got := statusOf(ctx, t, f); !got.GetPluginRegistered() {
					t.Errorf("%s: status: %v", name, got)
				}
			}
			if tc.reads {
				register("read.testcsi")
			}
			mend()
			register("one.testcsi")
			register("two.testcsi")
		})
	}
}

// testlog is a log that can be read while it is written.
type testlog struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *testlog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *testlog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestNoEndpoint checks that a plugin without an endpoint serves at its registration socket.
func TestNoEndpoint(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t).runs()
	f := &testcsi.Fake{Info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: "x", SupportedVersions: []string{"1.0.0"}}}
	f.Serve(t, w.root, "one.testcsi")
	if got := statusOf(ctx, t, f); !got.GetPluginRegistered() {
		t.Fatalf("status: %v", got)
	}
	if p := <-w.came; p.Endpoint != filepath.Join(w.root, "plugins_registry", "one.testcsi.sock") {
		t.Errorf("%+v", p)
	}
}

// TestDirectory checks that plugins are unregistered when their directory is removed, and that plugins of the recreated
// directory register.
func TestDirectory(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t).runs()
	first, second := &testcsi.Fake{}, &testcsi.Fake{}
	first.Serve(t, w.root, "one.testcsi")
	statusOf(ctx, t, first)
	<-w.came
	if err := os.RemoveAll(filepath.Join(w.root, "plugins_registry")); err != nil {
		t.Fatal(err)
	}
	<-w.went
	second.Serve(t, w.root, "two.testcsi")
	if got := statusOf(ctx, t, second); !got.GetPluginRegistered() {
		t.Errorf("status: %v", got)
	}
}

// TestReplaced checks that a socket that replaces another one is a new plugin, even if the Watcher did not see the
// first one removed.
func TestReplaced(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t).runs()
	first, second := &testcsi.Fake{}, &testcsi.Fake{}
	first.Serve(t, w.root, "one.testcsi")
	statusOf(ctx, t, first)
	<-w.came
	second.Serve(t, w.root, "two.testcsi")
	statusOf(ctx, t, second)
	<-w.came
	registry := filepath.Join(w.root, "plugins_registry")
	if err := os.Rename(filepath.Join(registry, "two.testcsi.sock"), filepath.Join(registry, "one.testcsi.sock")); err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{<-w.went: true, <-w.went: true}
	if p := <-w.came; p.Name != "two.testcsi" || !gone["one.testcsi"] || !gone["two.testcsi"] {
		t.Errorf("%+v registered, %v unregistered", p, gone)
	}
}

// TestRefused checks that an invalid plugin is notified once and not retried, and that a temporary failure is notified
// and retried.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t).runs()
	in := func(path string) string { return filepath.Join(w.root, path) }
	for name, tc := range map[string]struct {
		info *registration.PluginInfo
		want string
	}{
		"device plugin": {&registration.PluginInfo{Type: registration.DevicePlugin, Name: "x"}, `type "DevicePlugin" are not supported`},
		"DRA plugin":    {&registration.PluginInfo{Type: registration.DRAPlugin, Name: "x"}, `type "DRAPlugin" are not supported`},
		"path as name":  {&registration.PluginInfo{Type: "CSIPlugin", Name: "../x", Endpoint: in("s")}, "must be a DNS name"},
		"no name":       {&registration.PluginInfo{Type: "CSIPlugin", Endpoint: in("s")}, "must be a DNS name"},
		"long name":     {&registration.PluginInfo{Type: "CSIPlugin", Name: strings.Repeat("x", 64), Endpoint: in("s")}, "must be a DNS name"},
		"outside":       {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: "/run/x.sock"}, "must be a path of a socket below"},
		"up": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("a") + "/../../x"},
			"must be a path of a socket below"},
		"long path": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in(strings.Repeat("p", 107))},
			"must be a path of a socket below"},
		"versions": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("s"),
			SupportedVersions: make([]string, 33)}, "33 versions"},
		"version": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("s"),
			SupportedVersions: []string{strings.Repeat("1", 33)}}, "33 characters"},
		"no socket": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("s")}, "no such file"},
		"directory": {&registration.PluginInfo{Type: "CSIPlugin", Name: "x", Endpoint: in("plugins_registry")}, "must be a socket"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testdeadline.Context(t, 5*time.Second)
			f := &testcsi.Fake{Info: tc.info}
			stop := f.Serve(t, w.root, "hostile.testcsi")
			defer stop()
			if got := statusOf(ctx, t, f); got.GetPluginRegistered() || !strings.Contains(got.GetError(), tc.want) {
				t.Errorf("status: %v", got)
			}
		})
	}
	select {
	case p := <-w.came:
		t.Errorf("%+v is registered", p)
	default:
	}
}

// TestAgain checks that failures are retried while the socket exists, also without a server behind it.
func TestAgain(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t).runs()
	w.refuses(errors.New("temporary error"))
	f := &testcsi.Fake{}
	stop := f.Serve(t, w.root, "one.testcsi")
	if got := statusOf(ctx, t, f); got.GetPluginRegistered() || !strings.Contains(got.GetError(), "temporary error") {
		t.Errorf("status: %v", got)
	}
	w.refuses(nil)
	if got := statusOf(ctx, t, f); !got.GetPluginRegistered() {
		t.Errorf("status: %v", got)
	}
	stop()
	<-w.went
	dead, err := net.Listen("unix", filepath.Join(w.root, "plugins_registry", "dead.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close() // it accepts no connections
	g := &testcsi.Fake{}
	g.Serve(t, w.root, "two.testcsi")
	if got := statusOf(ctx, t, g); !got.GetPluginRegistered() {
		t.Errorf("status with a silent plugin present: %v", got)
	}
}

// TestHuge checks that an oversized description is refused and does not affect other plugins.
func TestHuge(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 5*time.Second)
	w := newWorld(t).runs()
	huge := &testcsi.Fake{Info: &registration.PluginInfo{Type: "CSIPlugin", Name: strings.Repeat("x", 2*maxMessage)}}
	huge.Serve(t, w.root, "huge.testcsi")
	f := &testcsi.Fake{}
	f.Serve(t, w.root, "one.testcsi")
	if got := statusOf(ctx, t, f); !got.GetPluginRegistered() || (<-w.came).Name != "one.testcsi" {
		t.Errorf("status: %v", got)
	}
}
