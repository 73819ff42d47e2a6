package fsys_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/fsystest"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// guest sends arbitrary requests to a file system, like a hostile kernel.
type guest struct {
	*testing.T
	*fsys.FS
}

// raw returns a file system of the directory host, as "data", and its node.
func raw(t *testing.T, o fsys.Options, r fsys.Root, host string) (guest, uint64) {
	t.Helper()
	r.Name = "data"
	fs, err := fsystest.New(fsystest.Spec{Options: o, Roots: []fsystest.Root{{Root: r, Path: host}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fs.Close)
	g := guest{t, fs}
	return g, g.lookup(1, "data")
}

func head(node uint64) fuse.InHeader { return fuse.InHeader{NodeId: node} }

// lookup returns the node of a name, which must exist.
func (g guest) lookup(dir uint64, name string) uint64 {
	g.Helper()
	var out fuse.EntryOut
	h := head(dir)
	if st := g.Lookup(nil, &h, name, &out); !st.Ok() || out.NodeId == 0 {
		g.Fatalf("lookup of %s in %d: %v", name, dir, st)
	}
	return out.NodeId
}

// open returns a handle of a node.
func (g guest) open(node uint64, flags uint32) uint64 {
	g.Helper()
	var out fuse.OpenOut
	if st := g.Open(nil, &fuse.OpenIn{InHeader: head(node), Flags: flags}, &out); !st.Ok() {
		g.Fatalf("open of %d: %v", node, st)
	}
	return out.Fh
}

// change is a request that changes something: a name in a directory, or a node by a handle.
type change struct {
	what string
	do   func(g guest, dir uint64, name string, node, fh uint64) fuse.Status
}

// named are the requests that make or remove a name.
var named = []change{
	{"create", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		return g.Create(nil, &fuse.CreateIn{InHeader: head(dir), Flags: unix.O_RDWR, Mode: 0o644}, name, new(fuse.CreateOut))
	}},
	{"create to truncate", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		in := &fuse.CreateIn{InHeader: head(dir), Flags: unix.O_WRONLY | unix.O_TRUNC, Mode: 0o644}
		return g.Create(nil, in, name, new(fuse.CreateOut))
	}},
	{"mknod", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		return g.Mknod(nil, &fuse.MknodIn{InHeader: head(dir), Mode: unix.S_IFREG | 0o644}, name, new(fuse.EntryOut))
	}},
	{"mkdir", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		return g.Mkdir(nil, &fuse.MkdirIn{InHeader: head(dir), Mode: 0o755}, name, new(fuse.EntryOut))
	}},
	{"symlink", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		h := head(dir)
		return g.Symlink(nil, &h, "target", name, new(fuse.EntryOut))
	}},
	{"link", func(g guest, dir uint64, name string, node, _ uint64) fuse.Status {
		return g.Link(nil, &fuse.LinkIn{InHeader: head(dir), Oldnodeid: node}, name, new(fuse.EntryOut))
	}},
	{"rmdir", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		h := head(dir)
		return g.Rmdir(nil, &h, name)
	}},
	{"rename from", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		return g.Rename(nil, &fuse.RenameIn{InHeader: head(dir), Newdir: dir}, name, "elsewhere")
	}},
	{"rename to", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		return g.Rename(nil, &fuse.RenameIn{InHeader: head(dir), Newdir: dir}, "file", name)
	}},
	{"unlink", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		h := head(dir)
		return g.Unlink(nil, &h, name)
	}},
}

// TestNames refuses names that are not one component.
func TestNames(t *testing.T) {
	base := t.TempDir()
	host := filepath.Join(base, "shared")
	if err := os.Mkdir(host, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(host, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g, dir := raw(t, fsys.Options{}, fsys.Root{}, host)
	node := g.lookup(dir, "file")
	lookup := change{"lookup", func(g guest, dir uint64, name string, _, _ uint64) fuse.Status {
		h := head(dir)
		return g.Lookup(nil, &h, name, new(fuse.EntryOut))
	}}
	for name, want := range map[string]fuse.Status{
		"": fuse.EINVAL, ".": fuse.EINVAL, "..": fuse.EINVAL, "../x": fuse.EINVAL, "a/b": fuse.EINVAL, "/": fuse.EINVAL,
		"/etc/passwd": fuse.EINVAL, "a\x00b": fuse.EINVAL,
		strings.Repeat("n", 256): fuse.Status(unix.ENAMETOOLONG), strings.Repeat("n", 4096): fuse.Status(unix.ENAMETOOLONG),
	} {
		for _, c := range append([]change{lookup}, named...) {
			if got := c.do(g, dir, name, node, 0); got != want {
				t.Errorf("%s of %.20q: %v", c.what, name, got)
			}
		}
	}
	if all, err := os.ReadDir(base); err != nil || len(all) != 1 {
		t.Errorf("outside: %v, %v", all, err)
	}
	if all, err := os.ReadDir(host); err != nil || len(all) != 1 {
		t.Errorf("inside: %v, %v", all, err)
	}
}

// TestLinks: no link is followed where a request expects another type.
func TestLinks(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"shared", "outside"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	host := filepath.Join(base, "shared")
	for link, to := range map[string]string{
		"dangling": "../outside/new", "up": "../outside", "all": filepath.Join(base, "outside/new"), "proc": "/proc/self/cwd",
	} {
		if err := os.Symlink(to, filepath.Join(host, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(host, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, filepath.Join(base, "outside"))
	g, dir := raw(t, fsys.Options{}, fsys.Root{}, host)
	node := g.lookup(dir, "file")
	for _, link := range []string{"dangling", "up", "all", "proc"} {
		at := g.lookup(dir, link)
		for _, c := range named[:6] {
			if got := c.do(g, dir, link, node, 0); got.Ok() {
				t.Errorf("%s of a link", c.what)
			}
			if got := c.do(g, at, "new", node, 0); got != fuse.ENOTDIR {
				t.Errorf("%s below a link: %v", c.what, got)
			}
		}
		h := head(at)
		for what, got := range map[string]fuse.Status{
			"open":     g.Open(nil, &fuse.OpenIn{InHeader: h, Flags: unix.O_RDWR}, new(fuse.OpenOut)),
			"opendir":  g.OpenDir(nil, &fuse.OpenIn{InHeader: h}, new(fuse.OpenOut)),
			"lookup":   g.Lookup(nil, &h, "new", new(fuse.EntryOut)),
			"truncate": setattr(fuse.FATTR_SIZE)(g, dir, "", at, 0),
			"chmod":    setattr(fuse.FATTR_MODE)(g, dir, "", at, 0),
			"setxattr": g.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h, Size: 1}, "user.a", []byte("v")),
		} {
			if got.Ok() {
				t.Errorf("%s of a link", what)
			}
		}
		if got := setattr(fuse.FATTR_UID|fuse.FATTR_MTIME)(g, dir, "", at, 0); !got.Ok() {
			t.Errorf("chown of a link itself: %v", got)
		}
	}
	if after := snapshot(t, filepath.Join(base, "outside")); after != before {
		t.Errorf("outside was\n%sand is\n%s", before, after)
	}
}

// keeps opens a node, and reports whether its pages may be kept.
func (g guest) keeps(node uint64) bool {
	g.Helper()
	var out fuse.OpenOut
	if st := g.Open(nil, &fuse.OpenIn{InHeader: head(node)}, &out); !st.Ok() {
		g.Fatal(st)
	}
	g.Release(nil, &fuse.ReleaseIn{InHeader: head(node), Fh: out.Fh})
	return out.OpenFlags&fuse.FOPEN_KEEP_CACHE != 0
}
