package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// TestRoots: what the engine has put there is found by its name, at the beginning and later, and
// nothing else is.
func TestRoots(t *testing.T) {
	dir := t.TempDir()
	first, later := share.Name("/first", false, false, false, share.Auto), share.Name("/later", true, false, false, share.Always)
	for _, name := range []string{first, "." + later, "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *roots {
		files, err := fsys.New(fsys.Options{Descriptors: 256})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(files.Close)
		at, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { at.Close() })
		return newRoots(files, at)
	}
	lookup := func(r *roots, name string) (uint64, fuse.Status) {
		var out fuse.EntryOut
		st := r.Lookup(nil, &fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}, name, &out)
		return out.NodeId, st
	}
	r := open()
	if err := r.findAll(); err != nil {
		t.Fatal(err)
	}
	id, st := lookup(r, first)
	if st != fuse.OK || id == 0 {
		t.Errorf("the first: %v", st)
	}
	if _, st := lookup(r, later); st != fuse.ENOENT {
		t.Errorf("one that is not there: %v", st)
	}
	if err := os.Mkdir(filepath.Join(dir, later), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, st := lookup(r, later); st != fuse.OK {
		t.Errorf("one that came later: %v", st)
	}
	for _, name := range []string{"..", "other", "." + later, first + "/x", "auto-../../../../../../etc/x"} {
		if _, st := lookup(r, name); st == fuse.OK {
			t.Errorf("%q is found", name)
		}
	}
	// The next server's guest goes on with what it has mounted.
	next := open()
	if err := next.findAll(); err != nil {
		t.Fatal(err)
	}
	var out fuse.AttrOut
	if st := next.GetAttr(nil, &fuse.GetAttrIn{InHeader: fuse.InHeader{NodeId: id}}, &out); st != fuse.OK {
		t.Errorf("the next server knows nothing of %x: %v", id, st)
	}
}

// TestReadOnlyRoot: what is shared read-only is so by its name, whatever its mount says: one that
// the host makes below it later has attributes of its own.
func TestReadOnlyRoot(t *testing.T) {
	dir := t.TempDir()
	files, err := fsys.New(fsys.Options{Descriptors: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	at, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	r := newRoots(files, at)
	for readOnly, want := range map[bool]fuse.Status{false: fuse.OK, true: fuse.EROFS} {
		name := share.Name("/it", readOnly, true, false, share.Auto)
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		var out fuse.EntryOut
		if st := r.Lookup(nil, &fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}, name, &out); st != fuse.OK {
			t.Fatal(st)
		}
		in := &fuse.MkdirIn{InHeader: fuse.InHeader{NodeId: out.NodeId}, Mode: 0o755}
		if st := r.Mkdir(nil, in, "new", &out); st != want {
			t.Errorf("read-only %v: %v, want %v", readOnly, st, want)
		}
	}
}
