package fsys_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// files creates n empty files in dir, and returns the name of the ith.
func files(t *testing.T, dir string, n int) func(i int) string {
	t.Helper()
	name := func(i int) string { return fmt.Sprintf("file-%06d", i) }
	for i := range n {
		fd, err := unix.Open(filepath.Join(dir, name(i)), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
	}
	return name
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLookups looks up more files than the guest may know, again and again, and forgets none. Memory and descriptors
// stay within their bounds, and known files keep working.
func TestLookups(t *testing.T) {
	lookups, distinct := 100_000, 3000
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		lookups, distinct = 1_000_000, 50_000
	}
	host := t.TempDir()
	name := files(t, host, distinct)
	known := distinct / 2
	was := heap()
	g, dir := raw(t, fsys.Options{Nodes: known, Descriptors: 500}, fsys.Root{}, host)
	first := g.lookup(dir, name(0))
	refused, ids := 0, map[uint64]bool{}
	for i := range lookups {
		var out fuse.EntryOut
		h := head(dir)
		switch st := g.Lookup(nil, &h, name(i%distinct), &out); st {
		case fuse.OK:
			ids[out.NodeId] = true
		case fuse.Status(unix.ENFILE):
			refused++
		default:
			t.Fatalf("lookup %d: %v", i, st)
		}
	}
	if refused == 0 {
		t.Error("the guest may know all files")
	}
	if st := g.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(first)}, new(fuse.AttrOut)); !st.Ok() {
		t.Errorf("the file looked up first: %v", st)
	}
	if grown := int64(heap()) - int64(was); grown > int64(known)*700+1<<20 {
		t.Errorf("%d bytes for %d files", grown, known)
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil || len(all) > 500 {
		t.Errorf("%d descriptors, %v", len(all), err)
	}
	for node := range ids {
		g.Forget(node, ^uint64(0))
	}
	g.lookup(dir, name(distinct-1))
}

// TestHandlesBounded: a handle beyond the bound is refused, and a closed one makes room again.
func TestHandlesBounded(t *testing.T) {
	host := t.TempDir()
	name := files(t, host, 1)
	g, dir := raw(t, fsys.Options{Descriptors: 160}, fsys.Root{}, host)
	node := g.lookup(dir, name(0))
	var last fuse.Status
	opened := uint64(0)
	for opened < 200 {
		if last = g.Open(nil, &fuse.OpenIn{InHeader: head(node)}, new(fuse.OpenOut)); !last.Ok() {
			break
		}
		opened++
	}
	if last != fuse.Status(unix.ENFILE) || opened < 50 {
		t.Fatalf("%d handles, then %v", opened, last)
	}
	g.Release(nil, &fuse.ReleaseIn{InHeader: head(node), Fh: 1})
	g.open(node, unix.O_RDONLY)
}

// TestWalk walks a tree with more files than descriptors through the guest's kernel, and finds each.
func TestWalk(t *testing.T) {
	t.Parallel()
	mounted, host := share(t, fsys.Options{Descriptors: 100}, fsys.Root{})
	for i := range 30 {
		dir := filepath.Join(host, fmt.Sprint(i), "a/b/c")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		files(t, dir, 30)
	}
	for range 2 {
		n := 0
		eachFile(t, mounted, func(path string) {
			if _, err := os.Lstat(path); err != nil {
				t.Error(err)
			}
			n++
		})
		if n != 1+30*(4+30) {
			t.Errorf("%d files", n)
		}
	}
}

// TestLarge lists a large directory, also from the middle, and finds each entry once.
func TestLarge(t *testing.T) {
	t.Parallel()
	count := 10_000
	if os.Getenv("BULKHEAD_TEST_LONG") != "" {
		count = 100_000
	}
	mounted, host := share(t, fsys.Options{}, fsys.Root{})
	files(t, host, count)
	fd, err := unix.Open(mounted, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	seen := map[string]int{}
	half := int64(-1)
	var beyond []string
	buf := make([]byte, 4096)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			seen[name]++
		}
		if half >= 0 {
			beyond = append(beyond, names...)
		} else if len(seen) > count/2 {
			if half, err = unix.Seek(fd, 0, unix.SEEK_CUR); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) != count {
		t.Errorf("%d entries", len(seen))
	}
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s is there %d times", name, times)
		}
	}
	if _, err := unix.Seek(fd, half, unix.SEEK_SET); err != nil {
		t.Fatal(err)
	}
	n, err := unix.Getdents(fd, buf)
	_, _, names := unix.ParseDirent(buf[:max(n, 0)], -1, nil)
	if err != nil || len(names) == 0 || names[0] != beyond[0] {
		t.Errorf("from the middle: %v, %v, and it was %v", names[:min(1, len(names))], err, beyond[0])
	}
}
