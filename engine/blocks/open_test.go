package blocks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func file(t *testing.T, path string, size int64) string {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpen checks that files that are not disks are refused without opening them.
func TestOpen(t *testing.T) {
	dir := realDir(t)
	file(t, filepath.Join(dir, "disk"), 1<<20)
	file(t, filepath.Join(dir, "odd"), 1000)
	file(t, filepath.Join(dir, "empty"), 0)
	file(t, filepath.Join(dir, "large"), slot.Size+512)
	if err := os.Symlink("disk", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path     string
		readOnly bool
		code     codes.Code
	}{
		{path: "disk"},
		{path: "disk", readOnly: true},
		{path: "large", readOnly: true},
		{path: "large", code: codes.Unimplemented},
		{path: "odd", code: codes.InvalidArgument},
		{path: "empty", code: codes.InvalidArgument},
		{path: "link", code: codes.InvalidArgument},
		{path: "fifo", code: codes.InvalidArgument},
		{path: ".", code: codes.InvalidArgument},
		{path: "none", code: codes.NotFound},
	} {
		d, err := Open(t.Context(), filepath.Join(dir, tt.path), 0, tt.readOnly)
		if grpccode.Of(err) != tt.code && (err != nil || tt.code != codes.OK) {
			t.Errorf("%s: %v", tt.path, err)
		}
		if err == nil {
			d.Close()
		}
	}
}

// TestLocks checks that a writer excludes others, that readers share, and that a lock ends with the last copy of
// its open file.
func TestLocks(t *testing.T) {
	path := file(t, filepath.Join(realDir(t), "disk"), 1<<20)
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	open := func(readOnly bool) (*Disk, bool) {
		t.Helper()
		d, err := Open(soon, path, 0, readOnly)
		if err != nil && (!errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), path) || grpccode.Of(err) != codes.FailedPrecondition) {
			t.Fatal(err)
		}
		return d, err == nil
	}
	w, ok := open(false)
	if !ok {
		t.Fatal("the disk is not locked")
	}
	for _, readOnly := range []bool{false, true} {
		if _, ok := open(readOnly); ok {
			t.Errorf("read-only %v: opened although a writer has the disk", readOnly)
		}
	}
	fd, err := unix.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, ok := open(true); ok {
		t.Error("the lock ended before its file")
	}
	unix.Close(fd)
	for range 2 {
		r, ok := open(true)
		if !ok {
			t.Fatal("two cannot read")
		}
		defer r.Close()
	}
	if _, ok := open(false); ok {
		t.Error("opened for writing although readers have the disk")
	}
}

// has lists the block devices of a pod's containers.
type has []store.Block

func (h has) Blocks(string) []store.Block { return h }

func (has) Holder(string) string { return "" }

func (has) Release(context.Context) error { return nil }

// TestPart checks that a disk that the pod already has is not sent again, and that conflicting uses are refused.
func TestPart(t *testing.T) {
	path := file(t, filepath.Join(realDir(t), "disk"), 1<<20)
	for _, tt := range []struct {
		name string
		has  has
		want store.Block
		sent bool
		code codes.Code
	}{
		{name: "new", want: store.Block{FS: "ext4"}, sent: true},
		{name: "there", has: has{{Path: path, FS: "ext4"}}, want: store.Block{FS: "ext4", ReadOnly: true}},
		{name: "another", has: has{{Path: path + "2"}}, want: store.Block{}, sent: true},
		{name: "mounted", has: has{{Path: path, FS: "ext4"}}, want: store.Block{}, code: codes.InvalidArgument},
		{name: "read-only", has: has{{Path: path, ReadOnly: true}}, want: store.Block{}, code: codes.FailedPrecondition},
	} {
		tt.want.Path = path
		part, disk, err := New(tt.has, nil, place.Rules{}).part(t.Context(), "c", tt.want)
		if (disk != nil) != tt.sent || err == nil && tt.code != codes.OK || err != nil && grpccode.Of(err) != tt.code {
			t.Errorf("%s: %v, %v", tt.name, disk, err)
		}
		if block, _ := part.Of.(containerv1.Block); block.Name != Name(tt.want) || string(block.FS) != tt.want.FS {
			t.Errorf("%s: %+v", tt.name, part)
		}
		if disk != nil {
			disk.Close()
		}
	}
}

// TestNamed checks that mounts of one disk by two paths get one name, and that read-only mounts are read-only.
func TestNamed(t *testing.T) {
	dir := realDir(t)
	path, link := file(t, filepath.Join(dir, "disk"), 1<<20), filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	ext4 := containerv1.Block{Name: path, FS: containerv1.FSExt4}
	linked := ext4
	linked.Name, linked.ReadOnly = link, true
	mounts := []containerv1.Mount{
		{Destination: "/a", Source: ext4, Options: []string{"rw"}}, {Destination: "/b", Source: linked, Options: []string{"rw"}},
	}
	s := New(has{}, nil, place.Rules{})
	all, err := s.Of(t.Context(), ext4, mounts[1:])
	if err != nil || len(all) != 1 || all[0].ReadOnly || all[0].Path != path {
		t.Fatalf("%+v, %v", all, err)
	}
	named, err := s.Named(t.Context(), mounts, all)
	if err != nil {
		t.Fatal(err)
	}
	for i, option := range []string{"rw", "ro"} {
		m := named[i]
		if disk, ok := m.Source.(containerv1.Block); !ok || disk.Name != Name(all[0]) || m.Options[0] != option {
			t.Errorf("%+v", m)
		}
	}
	mounts[1].Source = containerv1.Block{Name: link, Access: "r"}
	if _, err := s.Of(t.Context(), nil, mounts); grpccode.Of(err) != codes.InvalidArgument {
		t.Errorf("with its file system, and without: %v", err)
	}
}
