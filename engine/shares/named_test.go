package shares

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/share"
)

// TestNamed checks that each mount has the name of its own directory, and keeps its options.
func TestNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "part"), 0o755); err != nil {
		t.Fatal(err)
	}
	mounts := []containerv1.Mount{
		{Destination: "/a", Source: containerv1.Share{Name: dir}, Options: []string{"rw", "nosuid", "rslave"}},
		{Destination: "/b", Source: containerv1.Share{Name: dir}, Options: []string{"ro"}},
		{Destination: "/c", Source: containerv1.Share{Name: dir, Cache: "none"}, SubPath: "part"},
		{Destination: "/d", Source: containerv1.Dir{Name: "v"}},
	}
	s := New(nil, Host{})
	all, err := s.Of(t.Context(), store.Staging{}, containerv1.Image{ID: "i"}, append(mounts, mounts[0]))
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	want := []store.Share{
		{Asked: dir, Path: dir, Follow: true, Cache: "auto"}, {Asked: dir, Path: dir, ReadOnly: true, Cache: "auto"},
		{Asked: dir, SubPath: "part", Path: dir + "/part", Cache: "none"},
	}
	for i := range want {
		want[i].Mount = all[i].Mount // wherever the tests' directories are mounted
	}
	if !slices.Equal(all, want) || all[0].Mount == "" {
		t.Errorf("%+v", all)
	}
	named, err := Named(mounts, all)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i, m := range named[:3] {
		source, _ := m.Source.(containerv1.Share)
		cache, ok := share.CacheOf(source.Name)
		if !ok || string(cache) != all[i].Cache || m.SubPath != "" || source.Name != Name(all[i]) {
			t.Errorf("%d: %+v", i, m)
		}
		names[source.Name] = true
	}
	if len(names) != 3 || !slices.Contains(named[0].Options, "nosuid") || named[3].Source != mounts[3].Source {
		t.Errorf("%+v", named)
	}
	if mounts[0].Source != (containerv1.Share{Name: dir}) {
		t.Error("the request's own mounts are changed")
	}
	if _, err := Named(mounts, all[:1]); err == nil {
		t.Error("an unshared directory has a name")
	}
	some := []containerv1.Mount{{Source: containerv1.Share{Name: dir, Cache: "some"}}}
	if _, err := s.Of(t.Context(), store.Staging{}, containerv1.Image{ID: "i"}, some); grpccode.Of(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// TestPresent checks that a mounted volume is not created if it is missing, and that nothing is created in it for a
// reader.
func TestPresent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		path, part string
		present    bool
		option     string
		code       codes.Code
	}{
		"a client's":           {path: "x", option: "rw"},
		"a client's, read":     {path: "y", part: "z", option: "ro"},
		"mounted":              {present: true, option: "rw"},
		"not mounted":          {path: "gone", present: true, option: "rw", code: codes.NotFound},
		"a new part":           {part: "p/q", present: true, option: "rw"},
		"a new part, read":     {part: "r/s", present: true, option: "ro", code: codes.NotFound},
		"a new part, all read": {part: "t", present: true, option: "rro", code: codes.NotFound},
	} {
		source := containerv1.Share{Name: filepath.Join(dir, tt.path), Present: tt.present}
		_, err := New(nil, Host{}).Of(t.Context(), store.Staging{}, containerv1.Image{ID: "i"}, []containerv1.Mount{
			{Destination: "/a", Source: source, SubPath: tt.part, Options: []string{tt.option}},
		})
		if (err == nil) != (tt.code == codes.OK) || err != nil && grpccode.Of(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
		_, missing := os.Stat(filepath.Join(dir, tt.path, tt.part))
		if made := missing == nil; made != (tt.code == codes.OK) {
			t.Errorf("%s: it is there: %v", name, made)
		}
	}
}
