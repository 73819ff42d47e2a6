package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/oci"
)

// busyboxTree unpacks the test image into a directory, with a root user without a password.
func busyboxTree(t *testing.T, dir string) string {
	t.Helper()
	files := mutate.Extract(testimage.BusyboxImage(t))
	defer files.Close()
	cmd := exec.Command("tar", "-x", "-C", dir)
	cmd.Stdin = files
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unpack the image: %v: %s", err, out)
	}
	users := "root::0:0:root:/root:/bin/sh\ndemo:x:1000:1000::/:/bin/sh\n"
	for path, change := range map[string]func(string) error{
		"etc/passwd":  func(path string) error { return os.WriteFile(path, []byte(users), 0o644) },
		"bin/busybox": func(path string) error { return unix.Chmod(path, 0o4755) },
		"":            func(path string) error { return os.Chmod(path, 0o755) },
	} {
		if err := change(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// on creates and starts a sleeping container on a root.
func (p *blockPods) on(pod, name string, root containerv1.Root, change ...func(*engine.ContainerRequest)) (string, error) {
	p.Helper()
	spec, err := oci.New("", "sleep", "1000")
	if err != nil {
		p.Fatal(err)
	}
	r := engine.ContainerRequest{Key: name + "/0", Name: name, Spec: spec, Root: root, Stdio: containerv1.Discard{}}
	for _, c := range change {
		c(&r)
	}
	id, err := p.CreateContainer(p.ctx, pod, r)
	if err == nil {
		err = p.StartContainer(p.ctx, id)
	}
	return id, err
}

// same fails unless a file of the host has this content.
func (p *blockPods) same(path, want string) {
	p.Helper()
	got, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(got)) != want {
		p.Errorf("%s: %q, %v", path, got, err)
	}
}

func modeOf(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Mode & 0o7777
}

// inside is a script that works on any live root.
const inside = `
	echo made >/made; mkdir -p /d/e; ln /made /d/linked; ln -s /d/linked /through; cat /through; stat -c %h /made
	cp /bin/busybox /d/busybox; /d/busybox echo runs; rm /d/busybox
	mknod /node c 1 3 || echo no device; mkfifo /fifo && echo fifo
	su demo -c "id -u; su root -c 'id -u'"
	cp /bin/busybox /armed; chmod 4755 /armed; stat -c %a /armed`

const insideSays = "made\n2\nruns\nmknod: /node: Operation not permitted\nno device\nfifo\n1000\n0\n"

// TestSharedRoot checks a container on a directory of the host. Both sides see each other's writes at once.
func TestSharedRoot(t *testing.T) {
	p := newBlockPods(t, enginetest.Clones)
	pod := p.pod("one")
	tree := busyboxTree(t, realDir(t))
	a := p.must(p.on(pod.ID, "a", containerv1.Share{Name: tree}))
	p.says(p.sh(a, inside), insideSays+"755")
	p.same(filepath.Join(tree, "made"), "made")
	if mode := modeOf(t, filepath.Join(tree, "armed")); mode != 0o755 {
		t.Errorf("the container's file has mode %o on the host", mode)
	}
	if err := os.WriteFile(filepath.Join(tree, "hosts"), []byte("host's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.says(p.sh(a, "cat /hosts; echo x >/root/x; cat /proc/1/comm; ls /"), "host's\nsleep\n"+names(t, tree))

	// Another container on the same tree cannot write. One with SetID can make set-user-id programs.
	readOnly := func(r *engine.ContainerRequest) { r.Spec.Root = &specs.Root{Path: "rootfs", Readonly: true} }
	r := p.must(p.on(pod.ID, "r", containerv1.Share{Name: tree}, readOnly))
	p.says(p.sh(r, "cat /made; echo x >/made; echo x >/new"),
		"made\nsh: can't create /made: Read-only file system\nsh: can't create /new: Read-only file system")
	other := busyboxTree(t, realDir(t))
	s := p.must(p.on(pod.ID, "s", containerv1.Share{Name: other, SetID: true}))
	p.says(p.sh(s, inside), insideSays+"4755")
	if mode := modeOf(t, filepath.Join(other, "armed")); mode != 0o4755 {
		t.Errorf("the container's file has mode %o on the host", mode)
	}

	// The next shim and the next server find the old state.
	mounted := p.sh(a, "sort /proc/self/mounts | cut -d' ' -f2")
	servers := run(t, "pgrep", "-f", "bulkhead-share serve .*"+pod.ID)
	run(t, append([]string{"kill", "-9"}, strings.Fields(servers)...)...)
	if err := unix.Kill(pod.ShimPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another shim", func() bool {
		f, err := p.Facts(p.ctx, pod.ID)
		return err == nil && f.ShimPID != 0 && f.ShimPID != pod.ShimPID
	})
	// Programs that start in between cannot be read.
	until(t, "another server", func() bool {
		out, said, err := output(p.ctx, p.Engine, a, []string{"cat", "/made"}, testdeadline.For(20*time.Second))
		if err != nil {
			t.Logf("after the server's end: %v: %s", err, said)
		}
		return err == nil && string(out) == "made\n"
	})
	p.says(p.sh(a, "cat /proc/1/comm; ls /dev/null; sort /proc/self/mounts | cut -d' ' -f2"), "sleep\n/dev/null\n"+mounted)
	p.remove(a, r)
	p.says(p.sh(s, "echo after >/after"), "")
	p.same(filepath.Join(other, "after"), "after")
	if _, err := p.on(pod.ID, "n", containerv1.Share{Name: tree + "/none"}); err == nil {
		t.Error("a container runs on a missing directory")
	}
}

// TestSharedRootMounts checks that mounts in a container on a shared root survive when its servers are killed
// during lookups of their parent directories.
func TestSharedRootMounts(t *testing.T) {
	p := newBlockPods(t, enginetest.Clones)
	pod := p.pod("one")
	tree := busyboxTree(t, realDir(t))
	a := p.must(p.on(pod.ID, "a", containerv1.Share{Name: tree, Cache: "none"}))
	mounted := p.sh(a, "sort /proc/self/mounts | cut -d' ' -f2")
	p.says(p.sh(a, "while :; do [ -e /dev/shm/x ] || [ -e /proc/x ] || [ -e /sys/x ]; done </dev/null >/dev/null 2>&1 &"), "")
	for range 6 {
		servers := run(t, "pgrep", "-f", "bulkhead-share serve .*"+pod.ID)
		run(t, append([]string{"kill", "-9"}, strings.Fields(servers)...)...)
		until(t, "another server", func() bool {
			out, _, err := output(p.ctx, p.Engine, a, []string{"echo", "there"}, testdeadline.For(20*time.Second))
			return err == nil && string(out) == "there\n"
		})
	}
	p.says(p.sh(a, "sort /proc/self/mounts | cut -d' ' -f2; ls /dev/null"), mounted+"\n/dev/null")
}

// names returns the names in a directory, as ls prints them.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, "\n")
}

// privateMounts runs a test again in a process with its own mounts, and reports whether this is that process.
func privateMounts(t *testing.T) bool {
	t.Helper()
	const mark = "BULKHEAD_TEST_PRIVATE_MOUNTS"
	if os.Getenv(mark) != "" {
		return true
	}
	if testing.Short() {
		t.Skip("boots VMs: not with -short")
	}
	args := []string{"--mount", "--propagation", "private", os.Args[0], "-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=4m"}
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = append(os.Environ(), mark+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

// TestSharedRootOverlay checks that a root may be a mounted overlay. Changes of the container are in its upper
// directory.
func TestSharedRootOverlay(t *testing.T) {
	if !privateMounts(t) {
		return
	}
	p, dir := newBlockPods(t, enginetest.Clones), realDir(t)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busyboxTree(t, filepath.Join(dir, "lower"))
	merged := filepath.Join(dir, "merged")
	options := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	pod := p.pod("one").ID
	a := p.must(p.on(pod, "a", containerv1.Share{Name: merged}))
	p.says(p.sh(a, inside), insideSays+"755")
	p.says(p.sh(a, "echo changed >>/etc/passwd; rm /etc/group; tail -1 /etc/passwd"), "changed")
	p.same(filepath.Join(dir, "upper", "made"), "made")
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, "upper", "etc/group"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("the removed file has no whiteout: %v, %o", err, st.Mode)
	}
	if err := p.RemovePod(p.ctx, pod); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(merged, 0); err != nil {
		t.Errorf("the overlay is still in use: %v", err)
	}
}

// TestBlockRoot checks a container on the file system of a disk, alone or with other containers of its pod.
func TestBlockRoot(t *testing.T) {
	p, path := newBlockPods(t, enginetest.Clones), filepath.Join(realDir(t), "disk.img")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 100<<20); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-d", busyboxTree(t, realDir(t)), path)
	root := containerv1.Block{Name: path, FS: containerv1.FSExt4}
	one, two := p.pod("one").ID, p.pod("two").ID
	a := p.must(p.on(one, "a", root))
	b := p.must(p.on(one, "b", root))
	devices := strings.NewReplacer("mknod /node c 1 3 || ", "", "mknod: /node: Operation not permitted\n", "")
	p.says(p.sh(a, devices.Replace(inside)), devices.Replace(insideSays)+"4755")
	p.says(p.sh(b, "cat /made"), "made")
	if _, err := p.on(two, "c", root); err == nil {
		t.Error("two pods run on one disk")
	}
	p.remove(a, b)
	p.clean(path)
	p.says(p.sh(p.must(p.on(two, "c", root)), "cat /made"), "made")
}
