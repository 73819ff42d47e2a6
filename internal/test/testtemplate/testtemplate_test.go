package testtemplate

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/testtree"
)

// world has a cache and directories of one user.
type world struct {
	base, cache string
}

func newWorld(t *testing.T) world {
	t.Helper()
	base := t.TempDir()
	cache := filepath.Join(base, "cache")
	if err := os.Mkdir(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	return world{base, cache}
}

// user runs do like a test with a data directory of its own, in which it finds and leaves templates.
func (w world) user(t *testing.T, name string, do func(t *testing.T, home, templates string)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		home := filepath.Join(w.base, name)
		if err := os.Mkdir(home, 0o755); err != nil {
			t.Fatal(err)
		}
		roots := dirs.Roots{Data: filepath.Join(home, "d"), State: filepath.Join(home, "s")}
		share(t, w.cache, home, roots)
		do(t, home, roots.Templates())
	})
}

// write creates files. Each contains its name and the given text.
func write(t *testing.T, dir, text string, files ...string) {
	t.Helper()
	for _, file := range files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(file+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// finds compares the names and contents of all templates.
func finds(t *testing.T, templates string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(templates, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(templates, path)
		got[name] = string(text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestShare: later tests get the templates of an earlier one, whatever a test does to its own.
func TestShare(t *testing.T) {
	w := newWorld(t)
	w.user(t, "first", func(t *testing.T, home, templates string) {
		if found := testtree.List(t, home); len(found) != 0 {
			t.Errorf("the first finds %v", found)
		}
		write(t, templates, "", "k1/memory", "k1/template.json", "k2/template.json", ".k3.tmp/template.json", ".k1.lock", "disk", "k4/memory")
	})
	all := map[string]string{"k1/memory": "k1/memory", "k1/template.json": "k1/template.json", "k2/template.json": "k2/template.json"}
	for _, name := range []string{"second", "third"} {
		w.user(t, name, func(t *testing.T, _, templates string) {
			finds(t, templates, all)
			if err := os.RemoveAll(filepath.Join(templates, "k1")); err != nil {
				t.Error(err)
			}
		})
	}
	w.user(t, "rebuilds", func(t *testing.T, _, templates string) {
		if err := os.RemoveAll(filepath.Join(templates, "k1")); err != nil {
			t.Error(err)
		}
		write(t, templates, " again", "k1/memory", "k1/template.json")
	})
	all["k1/memory"], all["k1/template.json"] = "k1/memory again", "k1/template.json again"
	w.user(t, "last", func(t *testing.T, _, templates string) { finds(t, templates, all) })
}

// TestVerdict: later tests get the last verdict on KVM.
func TestVerdict(t *testing.T) {
	w := newWorld(t)
	for name, found := range []string{"", "s/kvm.json0", "s/kvm.json1"} {
		w.user(t, fmt.Sprint(name), func(t *testing.T, home, _ string) {
			path := filepath.Join(home, "s", verdictFile)
			if text, _ := os.ReadFile(path); string(text) != found {
				t.Errorf("found %q", text)
			}
			write(t, home, fmt.Sprint(name), "s/kvm.json")
		})
	}
}

// TestHalf: a template that a killed process has copied in part is not used, and is replaced.
func TestHalf(t *testing.T) {
	w := newWorld(t)
	u := user{uid: os.Getuid(), gid: os.Getgid(), kept: filepath.Join(w.cache, "0")}
	write(t, u.kept, "", "k1/memory")
	own := filepath.Join(w.base, "own")
	if err := u.link(u.kept, own, false); err != nil {
		t.Fatal(err)
	}
	finds(t, own, map[string]string{})
	write(t, own, " whole", "k1/memory", "k1/template.json")
	if err := u.link(own, u.kept, true); err != nil {
		t.Fatal(err)
	}
	finds(t, u.kept, map[string]string{"k1/memory": "k1/memory whole", "k1/template.json": "k1/template.json whole"})
}

// TestPrune: a template is removed after a day, and so is the oldest one beyond the limit.
func TestPrune(t *testing.T) {
	w := newWorld(t)
	age := func(key string, age time.Duration) {
		path := filepath.Join("0", key, infoFile)
		write(t, w.cache, "", path)
		if err := os.Chtimes(filepath.Join(w.cache, path), time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	age("old", lifetime+time.Minute)
	age("oldest but young", time.Hour)
	for i := range most {
		age(string(rune('a'+i)), time.Minute)
	}
	if err := prune(w.cache); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(w.cache, "*", "*"))
	if err != nil || len(left) != most || filepath.Base(left[0]) != "a" || filepath.Base(left[most-1]) != string(rune('a'+most-1)) {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestForget: the unused caches of other trees are removed, and the caller's counts as used.
func TestForget(t *testing.T) {
	w := newWorld(t)
	for key, age := range map[string]time.Duration{"mine": 9 * lifetime, "other": lifetime / 2, "unused": lifetime * 2} {
		dir := filepath.Join(w.cache, key)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := forget(w.cache, "mine"); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(w.cache, "*"))
	if want := []string{filepath.Join(w.cache, "mine"), filepath.Join(w.cache, "other")}; err != nil || !cmp.Equal(want, left) {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestSources: the key of a tree depends on its code, and not on its tests.
func TestSources(t *testing.T) {
	root := t.TempDir()
	write(t, root, "", "a/a.go", "a/a_test.go", "b/b.go")
	key := func() string {
		t.Helper()
		k, err := sources(root, "a")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	before := key()
	write(t, root, " changed", "a/a_test.go", "b/b.go")
	if key() != before {
		t.Error("a test or another directory changes the key")
	}
	write(t, root, " changed", "a/a.go")
	if key() == before {
		t.Error("code does not change the key")
	}
}
