package server

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share"
	"github.com/bulkhead-project/bulkhead/share/fsys"
	protocol "github.com/bulkhead-project/bulkhead/share/fsys/wire"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// TestRoots: directories that the engine has mounted are found by their names, at the start and later, and no others.
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
	// The next server's guest keeps its mounts.
	next := open()
	if err := next.findAll(); err != nil {
		t.Fatal(err)
	}
	var out fuse.AttrOut
	if st := next.GetAttr(nil, &fuse.GetAttrIn{InHeader: fuse.InHeader{NodeId: id}}, &out); st != fuse.OK {
		t.Errorf("the next server knows nothing of %x: %v", id, st)
	}
}

// TestLaterRoot: a directory that is mounted after its server has started is served to a guest that knows its number
// from an earlier server.
func TestLaterRoot(t *testing.T) {
	dir := t.TempDir()
	name := share.Name("/it", false, false, false, share.Auto)
	at := filepath.Join(dir, name)
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	open := func() *roots {
		files, err := fsys.New(fsys.Options{Descriptors: 256})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(files.Close)
		fd, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { fd.Close() })
		return newRoots(files, fd)
	}
	var out fuse.EntryOut
	if st := open().Lookup(nil, &fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}, name, &out); st != fuse.OK {
		t.Fatal(st)
	}
	if err := os.Rename(at, filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	r := open()
	a := &answerer{fuse: protocol.New(r, protocol.Options{MaxWrite: wire.MaxData}), again: r.rescan}
	answered := func(request []byte) unix.Errno {
		reply := make([]byte, largest)
		if n := a.reply(request, reply); n < protocol.OutHeader {
			t.Fatalf("%d bytes", n)
		}
		return unix.Errno(-int32(binary.NativeEndian.Uint32(reply[4:])))
	}
	const opInit, opGetattr = 26, 3
	init := fuseRequest(opInit, 2, 64)
	binary.NativeEndian.PutUint32(init[40:], 7)
	binary.NativeEndian.PutUint32(init[44:], 36)
	attributes := fuseRequest(opGetattr, 4, 16)
	binary.NativeEndian.PutUint64(attributes[16:], out.NodeId)
	if errno := answered(init); errno != 0 {
		t.Fatal(errno)
	}
	if errno := answered(attributes); errno != unix.ESTALE {
		t.Errorf("while it is away: %v", errno)
	}
	if err := os.Rename(filepath.Join(dir, "away"), at); err != nil {
		t.Fatal(err)
	}
	if errno := answered(attributes); errno != unix.ESTALE {
		t.Errorf("right after that the guest has it looked for again: %v", errno)
	}
	r.looked.Add(-int64(lookPause))
	if errno := answered(attributes); errno != 0 {
		t.Errorf("when it is there again: %v", errno)
	}
}

// TestReadOnlyRoot: a read-only share is read-only by its name, whatever its mounts say: later mounts of the host below
// it have attributes of their own.
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
