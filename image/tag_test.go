package image

import (
	"errors"
	"strings"
	"testing"
)

// TestTag: a tag adds a reference, and moves a name that meant another image.
func TestTag(t *testing.T) {
	ctx := testContext(t)
	s, _ := openStore(t, "run")
	one := load(t, s, "docker-archive:"+archived(t, "registry.test/one:1", "one"), "")
	two := load(t, s, "docker-archive:"+archived(t, "registry.test/two:1", "two"), "")
	for _, step := range []struct {
		what, image string
		names       []string
		want        error
	}{
		{what: "by name", image: "registry.test/one:1", names: []string{"app:dev", "registry.test/app"}},
		{what: "by id", image: two.ID[:12], names: []string{"app:other"}},
		{what: "moved", image: "registry.test/two:1", names: []string{"app:dev"}},
		{what: "again", image: "registry.test/two:1", names: []string{"app:dev"}},
		{what: "no such image", image: "nosuch", names: []string{"app:none"}, want: ErrNotFound},
		{what: "no name", image: one.ID, names: []string{""}, want: ErrInvalid},
		{what: "one of two is invalid", image: one.ID, names: []string{"app:none", "UPPER"}, want: ErrInvalid},
		{what: "digest", image: one.ID, names: []string{"app@sha256:" + one.ID}, want: ErrInvalid},
	} {
		if err := s.Tag(ctx, step.image, step.names); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.what, err, step.want)
		}
	}
	for id, want := range map[string]string{
		one.ID: "registry.test/app:latest registry.test/one:1",
		two.ID: "localhost/app:dev localhost/app:other registry.test/two:1",
	} {
		got, err := s.Resolve(id)
		if err != nil || strings.Join(got.Names, " ") != want {
			t.Errorf("names %q, want %q (%v)", got.Names, want, err)
		}
	}
	// An image exists until its last name is removed.
	for _, name := range []string{"registry.test/one:1", "registry.test/app"} {
		if !s.exists(one.ID) {
			t.Error("gone too soon")
		}
		if err := s.Remove(ctx, name, RemoveOptions{}); err != nil {
			t.Error(err)
		}
	}
	if s.exists(one.ID) {
		t.Error("the image outlives its names")
	}
}

// TestFor: an image that is loaded for another instance has a name there and not here. It exists when that instance
// opens its store, and until it removes it.
func TestFor(t *testing.T) {
	ctx := testContext(t)
	s, roots := openStore(t, "run")
	for _, name := range []string{"", "..", "a/b", "UPPER"} {
		if _, err := s.For(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	other, err := s.For("node")
	if err != nil {
		t.Fatal(err)
	}
	img := load(t, other, "docker-archive:"+archived(t, "registry.test/one:1", "one"), "")
	if _, err := s.Resolve("registry.test/one:1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the name is known here: %v", err)
	}
	node, err := Open(roots, "node")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := node.Resolve("registry.test/one:1"); err != nil || got.ID != img.ID {
		t.Errorf("the other instance has %q, %v", got.ID, err)
	}
	if err := other.Remove(ctx, "registry.test/one:1", RemoveOptions{}); err != nil || s.exists(img.ID) {
		t.Errorf("removed there: %v", err)
	}
}
