package image

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPins: pins keep their holders' names, whatever they are, and count each once.
func TestPins(t *testing.T) {
	ctx := testContext(t)
	s, _ := openStore(t, "run")
	img := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:1", "one"), "")
	other := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:2", "two"), "")
	longest := strings.Repeat("x", maxHolder)
	for _, step := range []struct {
		id, holder string
		want       error
	}{
		{id: img.ID, holder: "a/../b"},
		{id: img.ID, holder: "a/../b"},
		{id: img.ID, holder: longest},
		{id: img.ID, holder: longest + "x", want: ErrInvalid},
		{id: img.ID, holder: "", want: ErrInvalid},
		{id: strings.Repeat("a", 64), holder: "x", want: ErrNotFound},
		{id: "../" + img.ID, holder: "x", want: ErrNotFound},
		{id: other.ID, holder: "for a moment"},
	} {
		if err := s.Pin(ctx, step.id, step.holder); !errors.Is(err, step.want) {
			t.Errorf("%.20q for %.90q: %v, want %v", step.id, step.holder, err, step.want)
		}
	}
	if err := s.Unpin(ctx, other.ID, "for a moment"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"pin-", "x"} { // not pins
		if err := os.WriteFile(s.path("pins", other.ID, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Unpin(ctx, "../"+img.ID, "x"); err != nil {
		t.Error(err)
	}
	got, err := s.Pins()
	if diff := cmp.Diff(map[string][]string{img.ID: {"a/../b", longest}}, got); diff != "" || err != nil {
		t.Errorf("pins %s, %v", diff, err)
	}
	if err := s.UnpinAll(ctx, "a/../b"); err != nil {
		t.Error(err)
	}
	if got, err := s.Pins(); err != nil || len(got[img.ID]) != 1 {
		t.Errorf("pins %v, %v", got, err)
	}
}

// TestDigestsOfNames: an image pulled by several manifests has all their digests. An image that takes over a name has
// none of the former image's.
func TestDigestsOfNames(t *testing.T) {
	s, _ := openStore(t, "run")
	one := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:1", "one"), "")
	two := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:2", "two"), "")
	ctx := testContext(t)
	for _, r := range []ref{
		{Name: "registry.test/x:1", ID: one.ID, Digests: []string{"registry.test/x@b", "registry.test/x@a"}},
		{Name: "registry.test/x:1", ID: one.ID, Digests: []string{"registry.test/x@c", "registry.test/x@a"}},
		{Name: "registry.test/y:1", ID: one.ID, Digests: []string{"registry.test/y@d"}},
		{Name: "registry.test/y:1", ID: two.ID, Digests: []string{"registry.test/y@e"}},
	} {
		if err := s.locked(ctx, func() error { return s.setRef(r) }); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]string{one.ID: "x@a x@b x@c", two.ID: "y@e"} {
		img, err := s.Resolve(id)
		var got []string
		for _, d := range img.Digests {
			if !strings.Contains(d, "demo@") {
				got = append(got, strings.TrimPrefix(d, "registry.test/"))
			}
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("digests %v, want %s (%v)", got, want, err)
		}
	}
}

// TestList: the newest image is first, each is listed once, and one with missing files does not hide the others.
func TestList(t *testing.T) {
	s, _ := openStore(t, "run")
	old := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:1", "one"), "")
	next := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:2", "two"), "")
	load(t, s, "docker-archive:"+archived(t, "registry.test/demo:3", "two"), "")
	list, err := s.List()
	if err != nil || len(list) != 2 || list[0].ID != next.ID || list[1].ID != old.ID || len(list[0].Names) != 2 {
		t.Errorf("list %+v, %v", list, err)
	}
	if err := os.RemoveAll(s.path(next.ID)); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 1 || list[0].ID != old.ID {
		t.Errorf("list %+v, %v", list, err)
	}
	for prefix, want := range map[string]error{old.ID[:minPrefix]: nil, old.ID[:minPrefix-1]: ErrNotFound} {
		if got, err := s.Resolve(prefix); !errors.Is(err, want) || err == nil && got.ID != old.ID {
			t.Errorf("by %q: %v, %v", prefix, got.ID, err)
		}
	}
}
