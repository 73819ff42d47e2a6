package fsys_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/fsystest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// within waits until good is true, for as long as a change on the host may stay invisible.
func within(t *testing.T, what string, limit time.Duration, good func() bool) {
	t.Helper()
	for start := time.Now(); !good(); time.Sleep(time.Millisecond) {
		if time.Since(start) > testdeadline.For(limit) {
			t.Errorf("%s: not within %v", what, limit)
			return
		}
	}
}

func exists(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// TestHostChanges: a guest sees changes on the host within a second, or at once without caching.
func TestHostChanges(t *testing.T) {
	t.Parallel()
	for cache, limit := range map[fsys.Cache]time.Duration{fsys.CacheAuto: time.Second, fsys.CacheNone: 50 * time.Millisecond} {
		t.Run(limit.String(), func(t *testing.T) {
			t.Parallel()
			mounted, host := share(t, fsys.Options{}, fsys.Root{Cache: cache})
			a, b := filepath.Join(mounted, "a"), filepath.Join(mounted, "b")
			writeFile(t, filepath.Join(host, "a"), "one")
			if !exists(a) || exists(b) {
				t.Fatal("not as on the host")
			}
			fd, err := unix.Open(a, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := os.Rename(filepath.Join(host, "a"), filepath.Join(host, "b")); err != nil {
				t.Fatal(err)
			}
			within(t, "a new name", limit, func() bool { return exists(b) })
			within(t, "the old name", limit, func() bool { return !exists(a) })
			if err := os.Chmod(filepath.Join(host, "b"), 0o600); err != nil {
				t.Fatal(err)
			}
			within(t, "a mode", limit, func() bool {
				var st unix.Stat_t
				return unix.Fstat(fd, &st) == nil && st.Mode&0o777 == 0o600
			})
			writeFile(t, filepath.Join(host, "b"), "longer than before")
			within(t, "data of an open file", limit, func() bool {
				buf := make([]byte, 100)
				n, _ := unix.Pread(fd, buf, 0)
				return string(buf[:max(n, 0)]) == "longer than before"
			})
		})
	}
}

// TestCloseToOpen: one guest reads on open what another guest had written on close, even if the size and, within a tick
// of the kernel, the times are the same.
func TestCloseToOpen(t *testing.T) {
	t.Parallel()
	first, host := share(t, fsys.Options{}, fsys.Root{})
	top := fsystest.Mount(t, fsystest.Spec{Roots: []fsystest.Root{{Root: fsys.Root{Name: "data"}, Path: host}}})
	second := filepath.Join(top, "data")
	writeFile(t, filepath.Join(first, "file"), "text 000")
	for i := range 100 {
		writer, reader := first, second
		if i%2 == 1 {
			writer, reader = second, first
		}
		text := "text " + string([]byte{byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10)})
		writeFile(t, filepath.Join(writer, "file"), text)
		if got := content(filepath.Join(reader, "file")); got != text {
			t.Fatalf("round %d: %q", i, got)
		}
	}
}

// TestKeepsPages: a guest reads an unchanged file from its own memory.
func TestKeepsPages(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	writeFile(t, filepath.Join(host, "file"), "data")
	writeFile(t, filepath.Join(host, "fresh"), "data")
	if err := os.Chtimes(filepath.Join(host, "file"), before, before); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // very recent changes are not trusted
	writeFile(t, filepath.Join(host, "fresh"), "data")
	for name, c := range map[string]struct {
		cache fsys.Cache
		file  string
		keep  bool
	}{
		"auto":  {fsys.CacheAuto, "file", true},
		"fresh": {fsys.CacheAuto, "fresh", false},
		"none":  {fsys.CacheNone, "file", false},
	} {
		g, dir := raw(t, fsys.Options{}, fsys.Root{Cache: c.cache}, host)
		node := g.lookup(dir, c.file)
		if g.keeps(node) {
			t.Errorf("%s: pages are kept that are from nowhere", name)
		}
		if got := g.keeps(node); got != c.keep {
			t.Errorf("%s: kept is %v", name, got)
		}
	}
	g, dir := raw(t, fsys.Options{}, fsys.Root{Cache: fsys.CacheAlways, ReadOnly: true}, host)
	if !g.keeps(g.lookup(dir, "fresh")) {
		t.Error("an unchanged tree is not kept")
	}
}

// TestListingBringsAttributes: a directory's listing fills the guest's cache with attributes, so that reading all of
// them needs no further requests.
func TestListingBringsAttributes(t *testing.T) {
	t.Parallel()
	mounted, host := share(t, fsys.Options{}, fsys.Root{})
	const files = 300 // too many for one message
	for i := range files {
		writeFile(t, filepath.Join(host, strconv.Itoa(i)), "data")
	}
	for round, mode := range []os.FileMode{0o600, 0o640, 0o644} {
		for i := range files {
			if err := os.Chmod(filepath.Join(host, strconv.Itoa(i)), mode); err != nil {
				t.Fatal(err)
			}
		}
		all, err := os.ReadDir(mounted)
		if err != nil || len(all) != files {
			t.Fatalf("%d entries: %v", len(all), err)
		}
		for i := range files {
			info, err := os.Lstat(filepath.Join(mounted, strconv.Itoa(i)))
			if err != nil || info.Mode() != mode {
				t.Fatalf("round %d, file %d: %v, %v", round, i, info, err)
			}
		}
	}
}

// TestAppendsOfTwo: two guests append to one file concurrently. No data is lost, both see the same, and both see the
// file's times. A guest's kernel may write data that crosses a page in two pieces.
func TestAppendsOfTwo(t *testing.T) {
	t.Parallel()
	first, host := share(t, fsys.Options{}, fsys.Root{})
	top := fsystest.Mount(t, fsystest.Spec{Roots: []fsystest.Root{{Root: fsys.Root{Name: "data"}, Path: host}}})
	const times, length = 300, 18
	writeFile(t, filepath.Join(host, "log"), "")
	guests := map[string]string{"1": first, "2": filepath.Join(top, "data")}
	var all sync.WaitGroup
	for mark, dir := range guests {
		all.Go(func() {
			f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			for range times {
				if _, err := f.WriteString(strings.Repeat(mark, length)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	want := content(filepath.Join(host, "log"))
	info, err := os.Stat(filepath.Join(host, "log"))
	if err != nil || len(want) != len(guests)*times*length {
		t.Fatalf("%d bytes: %v", len(want), err)
	}
	for mark, dir := range guests {
		if n := strings.Count(want, mark); n != times*length {
			t.Errorf("%d bytes of guest %s are left", n, mark)
		}
		if got := content(filepath.Join(dir, "log")); got != want {
			t.Errorf("guest %s sees something else", mark)
		}
		within(t, "the time of the last change", time.Second, func() bool {
			seen, err := os.Stat(filepath.Join(dir, "log"))
			return err == nil && seen.ModTime().Equal(info.ModTime())
		})
	}
}
