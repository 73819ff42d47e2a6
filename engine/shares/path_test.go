package shares

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/share"
)

// TestOpen: what pods can have is opened where it really is, and the rest refused by name.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "above", "own")
	for _, d := range []string{own, filepath.Join(dir, "a/b")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "a", "a/out": "/etc", "a/in": "b", "to-own": own} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := Host{Own: []string{own}}
	for _, tt := range []struct {
		path, part string
		code       codes.Code
		at         string // below dir
	}{
		{path: "a", at: "a"},
		{path: "file", at: "file"},
		{path: "link/b", at: "a/b"},
		{path: "a", part: "b", at: "a/b"},
		{path: "link", part: "in", at: "a/b"},
		{path: "a", part: "made/below", at: "a/made/below"},
		{path: "a", part: "out", code: codes.InvalidArgument},
		{path: "a", part: "../a", code: codes.InvalidArgument},
		{path: "a", part: "in/../../..", code: codes.InvalidArgument},
		{path: "file", part: "x", code: codes.InvalidArgument},
		{path: "none", code: codes.NotFound},
		{path: "file/x", code: codes.NotFound},
		{path: "fifo", code: codes.Unimplemented},
		{path: "sock", code: codes.Unimplemented},
		{path: "above/own", code: codes.PermissionDenied},
		{path: "to-own", code: codes.PermissionDenied},
		{path: "above", at: "above"},
	} {
		p, err := h.open(filepath.Join(dir, tt.path), tt.part)
		if err != nil || tt.code != codes.OK {
			if err == nil || failure.Code(err) != tt.code {
				t.Errorf("%s, %s: %v", tt.path, tt.part, err)
			}
			continue
		}
		if p.path != filepath.Join(dir, tt.at) {
			t.Errorf("%s, %s: it is %s", tt.path, tt.part, p.path)
		}
		if hides := slices.Contains(p.masks, "own"); hides != (tt.path == "above") {
			t.Errorf("%s: hidden are %q", tt.path, p.masks)
		}
		p.Close()
	}
	for path, code := range map[string]codes.Code{
		"relative": codes.InvalidArgument, "/proc": codes.Unimplemented, "/proc/sys/kernel": codes.Unimplemented,
		"/sys": codes.Unimplemented, "/dev": codes.Unimplemented, "/dev/null": codes.Unimplemented,
	} {
		if p, err := h.open(path, ""); failure.Code(err) != code {
			t.Errorf("%s: %v, %v", path, p, err)
		}
	}
	p, err := h.open("/", "")
	if err != nil || !slices.Contains(p.masks, "proc") || !slices.Contains(p.masks, strings.TrimPrefix(own, "/")) {
		t.Errorf("the whole host: %+v, %v", p, err)
	}
}

// TestMake: a directory that is missing is made, but never in Bulkhead's own.
func TestMake(t *testing.T) {
	dir := t.TempDir()
	h := Host{Own: []string{filepath.Join(dir, "own")}}
	for path, made := range map[string]bool{"x/y": true, "own/x": false, "z/../own/x": false} {
		h.make(dir + "/" + path)
		if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != made {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestUnescape: the kernel writes four characters otherwise.
func TestUnescape(t *testing.T) {
	for text, want := range map[string]string{
		`/a`: "/a", `/a\040b`: "/a b", `/\134040`: `/\040`, `/a\012\011`: "/a\n\t", `/a\04`: `/a\04`, `/a\999`: `/a\999`,
	} {
		if got := unescape(text); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestNamed: each mount has the name of its own directory, and keeps its options.
func TestNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "part"), 0o755); err != nil {
		t.Fatal(err)
	}
	var mounts []containerv1.Mount
	spec := &specs.Spec{Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}}}
	for _, m := range []containerv1.Mount{
		{Destination: "/a", Source: containerv1.Share{Name: dir}, Options: []string{"rw", "nosuid", "rslave"}},
		{Destination: "/b", Source: containerv1.Share{Name: dir}, Options: []string{"ro"}},
		{Destination: "/c", Source: containerv1.Share{Name: dir, Cache: "none"}, SubPath: "part"},
		{Destination: "/d", Source: containerv1.Dir{Name: "v"}},
	} {
		mounts = append(mounts, m)
		kind, source, options := m.Encode()
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.Destination, Type: kind, Source: source, Options: options})
	}
	s := New(nil, Host{})
	all, err := s.Of(containerv1.Image{ID: "i"}, append(mounts, mounts[0]))
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	want := []store.Share{
		{Asked: dir, Path: dir, Follow: true, Cache: "auto"}, {Asked: dir, Path: dir, ReadOnly: true, Cache: "auto"},
		{Asked: dir, SubPath: "part", Path: dir + "/part", Cache: "none"},
	}
	if !slices.Equal(all, want) {
		t.Errorf("%+v", all)
	}
	named, err := Named(spec, all)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i, at := range []int{1, 2, 3} {
		m, _, err := containerv1.ParseMount("", named.Mounts[at].Type, named.Mounts[at].Source, named.Mounts[at].Options)
		source, _ := m.Source.(containerv1.Share)
		cache, ok := share.CacheOf(source.Name)
		if err != nil || !ok || string(cache) != all[i].Cache || m.SubPath != "" || source.Name != Name(all[i]) {
			t.Errorf("%d: %+v, %v", at, m, err)
		}
		names[source.Name] = true
	}
	if len(names) != 3 || !slices.Contains(named.Mounts[1].Options, "nosuid") || named.Mounts[0].Source != "proc" {
		t.Errorf("%+v", named.Mounts)
	}
	if spec.Mounts[1].Source != dir {
		t.Error("the request's own specification is changed")
	}
	if _, err := Named(spec, all[:1]); err == nil {
		t.Error("a directory that is not shared has a name")
	}
	some := []containerv1.Mount{{Source: containerv1.Share{Name: dir, Cache: "some"}}}
	if _, err := s.Of(containerv1.Image{ID: "i"}, some); failure.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}
