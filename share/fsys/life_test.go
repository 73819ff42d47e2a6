package fsys_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/fsystest"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// TestLife: open files and directories outlive their names, even if their nodes lose their descriptors.
func TestLife(t *testing.T) {
	t.Parallel()
	mounted, host := share(t, fsys.Options{Descriptors: 100}, fsys.Root{})
	if err := os.MkdirAll(filepath.Join(host, "dir/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(host, "dir/file"), "data")
	name := files(t, host, 300)
	crowd := func() {
		for i := range 300 {
			if !exists(filepath.Join(mounted, name(i))) {
				t.Fatal("a file is missing")
			}
		}
	}
	var fds []int
	for _, path := range []string{"dir/file", "dir/sub", "dir"} {
		fd, err := unix.Open(filepath.Join(mounted, path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	crowd()
	if err := os.Rename(filepath.Join(mounted, "dir"), filepath.Join(mounted, "moved")); err != nil {
		t.Fatal(err)
	}
	crowd()
	if !exists(filepath.Join(mounted, "moved/file")) {
		t.Error("the file has not moved")
	}
	if err := os.RemoveAll(filepath.Join(mounted, "moved")); err != nil {
		t.Fatal(err)
	}
	crowd()
	buf := make([]byte, 10)
	if n, err := unix.Pread(fds[0], buf, 0); err != nil || string(buf[:n]) != "data" {
		t.Errorf("the file that was removed: %q, %v", buf[:max(n, 0)], err)
	}
	for i, fd := range fds {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Nlink != 0 {
			t.Errorf("%d: %d links, %v", i, st.Nlink, err)
		}
		if err := unix.Fchmod(fd, 0o700); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if all, err := entries(fds[2]); !errors.Is(err, unix.ENOENT) { // as on the host
		t.Errorf("the directory that was removed: %s, %v", all, err)
	}
	// A file that the host has moved is found by its new name.
	if err := os.Rename(filepath.Join(host, name(0)), filepath.Join(host, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(mounted, "elsewhere")) {
		t.Error("a file that the host has moved is missing")
	}
}

// TestSparse: the guest sees the host's holes.
func TestSparse(t *testing.T) {
	t.Parallel()
	mounted, host := share(t, fsys.Options{}, fsys.Root{})
	const mib = 1 << 20
	fd, err := unix.Open(filepath.Join(mounted, "file"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, make([]byte, mib), 4*mib); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fsync(fd); err != nil {
		t.Fatal(err)
	}
	seek := func(offset int64, whence int, want int64) {
		t.Helper()
		if got, err := unix.Seek(fd, offset, whence); err != nil || got != want {
			t.Errorf("%d, %v, not %d", got, err, want)
		}
	}
	seek(0, unix.SEEK_DATA, 4*mib)
	seek(4*mib, unix.SEEK_HOLE, 5*mib)
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4*mib, mib/2); err != nil {
		t.Fatal(err)
	}
	seek(0, unix.SEEK_DATA, 4*mib+mib/2)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(host, "file"), &st); err != nil || st.Size != 5*mib || st.Blocks*512 > mib {
		t.Errorf("on the host: %d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
}

// TestRoots shares a directory, a file and another file system side by side. Inode numbers differ, each has its own
// statfs, no file moves between them, and one is removed while it is in use.
func TestRoots(t *testing.T) {
	t.Parallel()
	disk, memory := t.TempDir(), t.TempDir()
	if err := unix.Mount("roots", memory, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(memory, unix.MNT_DETACH) }()
	writeFile(t, filepath.Join(disk, "file"), "data")
	files(t, memory, 50)
	files(t, disk, 50)
	top := fsystest.Mount(t, fsystest.Spec{Roots: []fsystest.Root{
		{Root: fsys.Root{Name: "disk"}, Path: disk}, {Root: fsys.Root{Name: "memory"}, Path: memory},
		{Root: fsys.Root{Name: "single"}, Path: filepath.Join(disk, "file")},
	}})
	all, err := os.ReadDir(top)
	if err != nil || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
	if got := content(filepath.Join(top, "single")); got != "data" {
		t.Errorf("the file: %q", got)
	}
	writeFile(t, filepath.Join(top, "single"), "new data")
	if got := content(filepath.Join(disk, "file")); got != "new data" {
		t.Errorf("the file on the host: %q", got)
	}
	inodes := map[uint64]string{}
	for _, tree := range []string{"disk", "memory"} {
		eachFile(t, filepath.Join(top, tree), func(path string) {
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				t.Error(err)
			}
			if other := inodes[st.Ino]; other != "" {
				t.Errorf("%s and %s are inode %d", path, other, st.Ino)
			}
			inodes[st.Ino] = path
		})
	}
	if err := os.Rename(filepath.Join(top, "disk/file"), filepath.Join(top, "memory/file")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("moved between roots: %v", err)
	}
	if err := os.Link(filepath.Join(top, "disk/file"), filepath.Join(top, "memory/file")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("linked between roots: %v", err)
	}
	if err := os.Mkdir(filepath.Join(top, "new"), 0o755); !errors.Is(err, unix.EROFS) {
		t.Errorf("made beside the roots: %v", err)
	}
	if err := os.WriteFile(filepath.Join(top, "memory/big"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than there is room for: %v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(top, "memory"), &st); err != nil || st.Blocks*uint64(st.Bsize) != 1<<20 {
		t.Errorf("statfs: %d blocks of %d, %v", st.Blocks, st.Bsize, err)
	}
}

// TestRemove removes a root while the guest has files in it open.
func TestRemove(t *testing.T) {
	host := t.TempDir()
	writeFile(t, filepath.Join(host, "file"), "data")
	was := open(t)
	g, dir := raw(t, fsys.Options{}, fsys.Root{}, host)
	node := g.lookup(dir, "file")
	fh := g.open(node, unix.O_RDWR)
	if err := g.Remove("data"); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove("data"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("removed again: %v", err)
	}
	if is := open(t); is != was+1 { // /proc/self/fd stays
		t.Errorf("%d descriptors, there were %d", is, was)
	}
	h := head(dir)
	for what, got := range map[string][2]fuse.Status{
		"getattr": {g.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(node)}, new(fuse.AttrOut)), fuse.Status(unix.ESTALE)},
		"lookup":  {g.Lookup(nil, &h, "file", new(fuse.EntryOut)), fuse.Status(unix.ESTALE)},
		"write":   {attrs[0].do(g, dir, "", node, fh), fuse.EBADF},
		"open":    {attrs[3].do(g, dir, "", node, fh), fuse.Status(unix.ESTALE)},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %v", what, got[0])
		}
	}
	g.Forget(node, 1)
	g.Forget(dir, 1)
}

// open returns the number of this process's descriptors.
func open(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestMounts: the host's mounts in a share are visible, read-only if the root is.
func TestMounts(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	inner := filepath.Join(host, "a/inner")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("mounts", inner, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(inner, unix.MNT_DETACH) }()
	writeFile(t, filepath.Join(inner, "file"), "data")
	top := fsystest.Mount(t, fsystest.Spec{Roots: []fsystest.Root{
		{Root: fsys.Root{Name: "rw"}, Path: host}, {Root: fsys.Root{Name: "ro", ReadOnly: true}, Path: host},
	}})
	for _, tree := range []string{"rw", "ro"} {
		if got := content(filepath.Join(top, tree, "a/inner/file")); got != "data" {
			t.Errorf("%s: %q", tree, got)
		}
	}
	if err := os.WriteFile(filepath.Join(top, "ro/a/inner/file"), nil, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("written: %v", err)
	}
	if err := os.Rename(filepath.Join(top, "rw/a/inner/file"), filepath.Join(top, "rw/file")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("moved between mounts: %v", err)
	}
	if err := os.Remove(filepath.Join(top, "rw/a/inner")); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed: %v", err)
	}
	writeFile(t, filepath.Join(top, "rw/a/inner/file"), "new data")
	if got := content(filepath.Join(inner, "file")); got != "new data" {
		t.Errorf("on the host: %q", got)
	}
}
