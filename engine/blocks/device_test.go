package blocks

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// run returns the output of a host program.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// loopDevice creates a block device with an empty file system, and returns its number.
func loopDevice(t *testing.T, dir string) (path string, number uint64) {
	t.Helper()
	disk := file(t, filepath.Join(dir, "loop"), 8<<20)
	run(t, "/sbin/mkfs.ext4", "-q", disk)
	path = run(t, "/sbin/losetup", "--find", "--show", disk)
	t.Cleanup(func() { run(t, "/sbin/losetup", "--detach", path) })
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return path, st.Rdev
}

// TestSwapped checks that a file that replaces a block device at any moment is not opened.
func TestSwapped(t *testing.T) {
	dir := realDir(t)
	loop, number := loopDevice(t, dir)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(loop, link); err != nil {
		t.Fatal(err)
	}
	s := New(has{}, nil, place.Rules{})
	asked := containerv1.Block{Name: link, Access: "rwm", Device: number}
	mounts := []containerv1.Mount{{Destination: "/dev/x", Source: asked}}
	all, err := s.Of(t.Context(), nil, mounts)
	if err != nil || len(all) != 1 || all[0].Path != loop || all[0].Device != number {
		t.Fatalf("%+v, %v", all, err)
	}
	_, disk, err := s.part(t.Context(), "c", all[0])
	if err != nil {
		t.Fatal(err)
	}
	disk.Close()
	other := asked
	other.Device++
	if path, err := s.find(t.Context(), other); grpccode.Of(err) != codes.FailedPrecondition {
		t.Errorf("another device: %s, %v", path, err)
	}
	secret := file(t, filepath.Join(dir, "secret"), 1<<20)
	if err := errors.Join(os.Remove(link), os.Symlink(secret, link)); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Of(t.Context(), nil, mounts); grpccode.Of(err) != codes.FailedPrecondition {
		t.Errorf("a file: %+v, %v", all, err)
	}
	all[0].Path = secret
	if _, disk, err := s.part(t.Context(), "c", all[0]); disk != nil || grpccode.Of(err) != codes.FailedPrecondition {
		t.Errorf("a file that was put there later: %v, %v", disk, err)
	}
}

// TestMounted checks that a disk that the host has mounted is not opened, and that several readers can share one
// that is not mounted.
func TestMounted(t *testing.T) {
	dir := realDir(t)
	loop, number := loopDevice(t, dir)
	at := filepath.Join(dir, "at")
	if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount(loop, at, "ext4", unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	for _, readOnly := range []bool{false, true} {
		d, err := Open(soon, loop, number, readOnly)
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), loop) || d != nil {
			t.Errorf("read-only %v: %v, %v", readOnly, d, err)
		}
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d, err := Open(t.Context(), loop, number, true)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
	}
}

// TestThere checks that a replaced or removed file is not opened as the disk of its path.
func TestThere(t *testing.T) {
	path := file(t, filepath.Join(realDir(t), "disk"), 1<<20)
	d, err := Open(t.Context(), path, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.there(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := d.there(); grpccode.Of(err) != codes.NotFound {
		t.Errorf("removed: %v", err)
	}
	file(t, path, 1<<20)
	if err := d.there(); !errors.Is(err, errMoved) {
		t.Errorf("replaced: %v", err)
	}
}

// TestOtherNode checks that a lock also excludes users of another node of the device.
func TestOtherNode(t *testing.T) {
	dir := realDir(t)
	loop, number := loopDevice(t, dir)
	node := filepath.Join(dir, "node")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(number)); err != nil {
		t.Fatal(err)
	}
	s := New(has{}, nil, place.Rules{})
	parts := func(name string, readOnly bool) (*Parts, error) {
		source := containerv1.Block{Name: name, Access: "r", ReadOnly: readOnly}
		all, err := s.Of(t.Context(), nil, []containerv1.Mount{{Destination: "/dev/x", Source: source}})
		if err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return s.Parts(soon, "c", all)
	}
	reader, err := parts(node, true)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if p, err := parts(loop, false); !errors.Is(err, ErrInUse) {
		if p != nil {
			p.Close()
		}
		t.Errorf("a writer of a disk that has a reader: %v", err)
	}
}
