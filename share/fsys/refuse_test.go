package fsys_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// attrs are the requests that change a file itself.
var attrs = []change{
	{"write", func(g guest, _ uint64, _ string, node, fh uint64) fuse.Status {
		_, st := g.Write(nil, &fuse.WriteIn{InHeader: head(node), Fh: fh, Size: 1}, []byte("x"))
		return st
	}},
	{"fallocate", func(g guest, _ uint64, _ string, node, fh uint64) fuse.Status {
		return g.Fallocate(nil, &fuse.FallocateIn{InHeader: head(node), Fh: fh, Length: 1})
	}},
	{"copy_file_range", func(g guest, _ uint64, _ string, node, fh uint64) fuse.Status {
		_, st := g.CopyFileRange(nil, &fuse.CopyFileRangeIn{InHeader: head(node), FhIn: fh, NodeIdOut: node, FhOut: fh, Len: 1, OffOut: 1})
		return st
	}},
	{"open to write", func(g guest, _ uint64, _ string, node, _ uint64) fuse.Status {
		return g.Open(nil, &fuse.OpenIn{InHeader: head(node), Flags: unix.O_WRONLY}, new(fuse.OpenOut))
	}},
	{"open to truncate", func(g guest, _ uint64, _ string, node, _ uint64) fuse.Status {
		return g.Open(nil, &fuse.OpenIn{InHeader: head(node), Flags: unix.O_RDONLY | unix.O_TRUNC}, new(fuse.OpenOut))
	}},
	{"setxattr", func(g guest, _ uint64, _ string, node, _ uint64) fuse.Status {
		return g.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: head(node), Size: 1}, "user.b", []byte("v"))
	}},
	{"removexattr", func(g guest, _ uint64, _ string, node, _ uint64) fuse.Status {
		h := head(node)
		return g.RemoveXAttr(nil, &h, "user.a")
	}},
	{"chmod", setattr(fuse.FATTR_MODE)},
	{"chown", setattr(fuse.FATTR_UID | fuse.FATTR_GID)},
	{"truncate", setattr(fuse.FATTR_SIZE)},
	{"truncate an open file", setattr(fuse.FATTR_SIZE | fuse.FATTR_FH)},
	{"utimes", setattr(fuse.FATTR_ATIME | fuse.FATTR_MTIME)},
}

func setattr(valid uint32) func(g guest, dir uint64, name string, node, fh uint64) fuse.Status {
	return func(g guest, _ uint64, _ string, node, fh uint64) fuse.Status {
		in := &fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: head(node), Valid: valid, Fh: fh, Mode: 0o777, Mtime: 1}}
		return g.SetAttr(nil, in, new(fuse.AttrOut))
	}
}

// TestReadOnly refuses every change of a read-only root, by whatever node and handle.
func TestReadOnly(t *testing.T) {
	host := t.TempDir()
	file := filepath.Join(host, "file")
	if err := os.WriteFile(file, []byte("data"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(file, "user.a", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, host} {
		if err := os.Chtimes(path, before, before); err != nil {
			t.Fatal(err)
		}
	}
	was := snapshot(t, host)
	g, dir := raw(t, fsys.Options{}, fsys.Root{ReadOnly: true}, host)
	node := g.lookup(dir, "file")
	fh := g.open(node, unix.O_RDONLY)
	if r, st := g.Read(nil, &fuse.ReadIn{InHeader: head(node), Fh: fh}, make([]byte, 10)); !st.Ok() || r.Size() != 4 {
		t.Errorf("read: %v", st)
	}
	for _, c := range append(append([]change{}, named...), attrs...) {
		want := fuse.EROFS
		switch c.what {
		case "write", "fallocate", "copy_file_range":
			want = fuse.EBADF
		}
		if got := c.do(g, dir, "new", node, fh); got != want {
			t.Errorf("%s: %v", c.what, got)
		}
		if got := c.do(g, 1, "new", 1, fh); got.Ok() {
			t.Errorf("%s of the synthetic root", c.what)
		}
	}
	if st := g.Tmpfile(nil, &fuse.CreateIn{InHeader: head(dir), Flags: unix.O_RDWR}, new(fuse.CreateOut)); st != fuse.EROFS {
		t.Errorf("tmpfile: %v", st)
	}
	if is := snapshot(t, host); is != was {
		t.Errorf("was\n%sis\n%s", was, is)
	}
}

// TestLies refuses handles and nodes that are not the guest's, and numbers that no file has.
func TestLies(t *testing.T) {
	host := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(host, name), []byte("data"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	g, dir := raw(t, fsys.Options{}, fsys.Root{}, host)
	a, b := g.lookup(dir, "a"), g.lookup(dir, "b")
	fh := g.open(a, unix.O_RDWR)
	for _, c := range attrs[:3] {
		if got := c.do(g, dir, "", b, fh); got != fuse.EBADF {
			t.Errorf("%s by another node: %v", c.what, got)
		}
		if got := c.do(g, dir, "", a, fh+1); got != fuse.EBADF {
			t.Errorf("%s by another handle: %v", c.what, got)
		}
	}
	for _, c := range attrs[3:] {
		for _, node := range []uint64{0, b + 1, 1 << 40, ^uint64(0)} {
			if got := c.do(g, dir, "", node, fh); got != fuse.Status(unix.ESTALE) {
				t.Errorf("%s of node %d: %v", c.what, node, got)
			}
		}
	}
	for _, offset := range []uint64{1 << 63, ^uint64(0)} {
		if _, st := g.Write(nil, &fuse.WriteIn{InHeader: head(a), Fh: fh, Offset: offset, Size: 1}, []byte("x")); st != fuse.EINVAL {
			t.Errorf("write at %x: %v", offset, st)
		}
		if _, st := g.Read(nil, &fuse.ReadIn{InHeader: head(a), Fh: fh, Offset: offset}, make([]byte, 1)); st != fuse.EINVAL {
			t.Errorf("read at %x: %v", offset, st)
		}
		if st := g.Fallocate(nil, &fuse.FallocateIn{InHeader: head(a), Fh: fh, Offset: offset, Length: 1}); st != fuse.EINVAL {
			t.Errorf("fallocate at %x: %v", offset, st)
		}
		lock := &fuse.LkIn{InHeader: head(a), Fh: fh, Lk: fuse.FileLock{Start: offset, End: offset}}
		if st := g.SetLk(nil, lock); st != fuse.EINVAL {
			t.Errorf("lock at %x: %v", offset, st)
		}
	}
	g.Release(nil, &fuse.ReleaseIn{InHeader: head(b), Fh: fh})
	if _, st := g.Read(nil, &fuse.ReadIn{InHeader: head(a), Fh: fh}, make([]byte, 1)); !st.Ok() {
		t.Errorf("another node has closed the file: %v", st)
	}
	g.Release(nil, &fuse.ReleaseIn{InHeader: head(a), Fh: fh})
	g.Release(nil, &fuse.ReleaseIn{InHeader: head(a), Fh: fh})
	g.Forget(a, ^uint64(0))
	g.Forget(a, 1)
	if got := g.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(a)}, new(fuse.AttrOut)); got != fuse.Status(unix.ESTALE) {
		t.Errorf("a node that was forgotten: %v", got)
	}
}

// TestSpecial opens no devices, FIFOs and sockets, and makes no devices.
func TestSpecial(t *testing.T) {
	host := t.TempDir()
	for name, mode := range map[string]uint32{"fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK, "null": unix.S_IFCHR, "disk": unix.S_IFBLK} {
		if err := unix.Mknod(filepath.Join(host, name), mode|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
	}
	g, dir := raw(t, fsys.Options{}, fsys.Root{}, host)
	for _, name := range []string{"fifo", "socket", "null", "disk"} {
		node := g.lookup(dir, name)
		for _, flags := range []uint32{unix.O_RDONLY, unix.O_RDWR} {
			if st := g.Open(nil, &fuse.OpenIn{InHeader: head(node), Flags: flags}, new(fuse.OpenOut)); st != fuse.EPERM {
				t.Errorf("open of %s: %v", name, st)
			}
			in := &fuse.CreateIn{InHeader: head(dir), Flags: flags, Mode: 0o600}
			if st := g.Create(nil, in, name, new(fuse.CreateOut)); st != fuse.EPERM {
				t.Errorf("create of %s: %v", name, st)
			}
		}
		h := head(node)
		if _, st := g.GetXAttr(nil, &h, "user.a", nil); st != fuse.ENODATA {
			t.Errorf("attribute of %s: %v", name, st)
		}
		if st := g.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h, Size: 1}, "user.a", []byte("v")); st != fuse.EPERM {
			t.Errorf("attribute of %s: %v", name, st)
		}
	}
	for _, mode := range []uint32{unix.S_IFCHR, unix.S_IFBLK, unix.S_IFDIR, unix.S_IFLNK} {
		in := &fuse.MknodIn{InHeader: head(dir), Mode: mode | 0o666, Rdev: uint32(unix.Mkdev(1, 3))}
		if st := g.Mknod(nil, in, "new", new(fuse.EntryOut)); st != fuse.EPERM {
			t.Errorf("mknod of %o: %v", mode, st)
		}
	}
	for _, name := range []string{"security.capability", "trusted.a", "security.selinux", "system.posix_acl_access"} {
		if st := g.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: head(dir), Size: 1}, name, []byte("v")); st != fuse.ENOTSUP {
			t.Errorf("%s: %v", name, st)
		}
	}
}
