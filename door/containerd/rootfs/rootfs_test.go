package rootfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/moby/sys/mountinfo"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// disk is where tests lay out file systems: overlayfs refuses an upper directory on some others.
func disk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	return dir
}

func directory(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// noMounts fails if something is mounted at dir or below.
func noMounts(t *testing.T, dir string) {
	t.Helper()
	left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil || len(left) > 0 {
		t.Errorf("%d mounts are left at %s, %v", len(left), dir, err)
	}
}

// TestOverlay: an overlay of 120 layers is mounted, although its options have more than a page.
func TestOverlay(t *testing.T) {
	dir := disk(t)
	var lowers []string
	for i := range 120 {
		lower := filepath.Join(dir, "snapshots-of-a-long-name-"+strings.Repeat("x", 40), fmt.Sprint(i), "fs")
		write(t, filepath.Join(lower, "number"), fmt.Sprint(i))
		lowers = append(lowers, lower)
	}
	target := directory(t, dir, "rootfs")
	mounts := []*types.Mount{{Type: "overlay", Source: "overlay", Options: []string{
		"workdir=" + directory(t, dir, "work"), "upperdir=" + directory(t, dir, "upper"), lowerdir + strings.Join(lowers, ":"),
	}}}
	if err := Mount(t.Context(), target, mounts); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(target, "number")); err != nil || string(b) != "0" {
		t.Errorf("got %q, %v, want the top layer's file", b, err)
	}
	write(t, filepath.Join(target, "new"), "x")
	if _, err := os.Stat(filepath.Join(dir, "upper", "new")); err != nil {
		t.Error(err)
	}
	if err := Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
	noMounts(t, target)
}

// TestBind: a read-only bind with a mount below it, as the native snapshotter with volumes has. Unmount removes both,
// also if a file is open.
func TestBind(t *testing.T) {
	dir := disk(t)
	write(t, filepath.Join(dir, "root", "file"), "x")
	target := directory(t, dir, "rootfs")
	mounts := []*types.Mount{
		{Type: "bind", Source: filepath.Join(dir, "root"), Options: []string{"rbind", "rw"}},
		{Type: "tmpfs", Source: "tmpfs", Target: "/deep/below", Options: []string{"size=1m", "nosuid"}},
	}
	if err := Mount(t.Context(), target, mounts); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(target, "deep", "below", "f"), "x")
	open, err := os.Open(filepath.Join(target, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
	noMounts(t, target)
	for range 2 {
		readOnly := []*types.Mount{{Type: "bind", Source: filepath.Join(dir, "root"), Options: []string{"bind", "ro"}}}
		if err := Mount(t.Context(), target, readOnly); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o600); err == nil {
		t.Error("a read-only root was written")
	}
	for range 2 { // the second time nothing is mounted
		if err := Unmount(t.Context(), target); err != nil {
			t.Error(err)
		}
		noMounts(t, target)
	}
}

// TestLoop: an image file is mounted by a loop device, which is released with the mount.
func TestLoop(t *testing.T) {
	dir := disk(t)
	write(t, filepath.Join(dir, "root", "file"), "content")
	image := filepath.Join(dir, "image")
	if out, err := exec.Command("mkfs.erofs", image, filepath.Join(dir, "root")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	target := directory(t, dir, "rootfs")
	if err := Mount(t.Context(), target, []*types.Mount{{Type: "erofs", Source: image, Options: []string{"ro", "loop"}}}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(target, "file")); err != nil || string(b) != "content" {
		t.Errorf("got %q, %v", b, err)
	}
	if err := Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range backing {
		if b, _ := os.ReadFile(file); strings.TrimSpace(string(b)) == image {
			t.Errorf("%s still has the image", file)
		}
	}
}

// TestHelper: FUSE file systems are mounted by their helper.
func TestHelper(t *testing.T) {
	dir := disk(t)
	write(t, filepath.Join(dir, "bin", "mount.fuse3"), "#!/bin/sh\necho \"$@\" >"+dir+"/args\n[ -d \"$2\" ]\n")
	if err := os.Chmod(filepath.Join(dir, "bin", "mount.fuse3"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	target := directory(t, dir, "rootfs")
	fuse := &types.Mount{Type: "fuse3.fuse-overlayfs", Source: "overlay", Options: []string{"lowerdir=/a", "ro"}}
	if err := Mount(t.Context(), target, []*types.Mount{fuse}); err != nil {
		t.Fatal(err)
	}
	want := "overlay " + target + " -o lowerdir=/a,ro -t fuse-overlayfs\n"
	if args, err := os.ReadFile(filepath.Join(dir, "args")); err != nil || string(args) != want {
		t.Errorf("got %q, %v, want %q", args, err, want)
	}
	if err := Mount(t.Context(), filepath.Join(dir, "none"), []*types.Mount{fuse}); err == nil {
		t.Error("a helper that fails: got nil, want an error")
	}
}

// TestMountRefuses: a list that fails leaves no mount. A link in the root leads no mount out of it.
func TestMountRefuses(t *testing.T) {
	dir := disk(t)
	outside := directory(t, dir, "outside")
	root := directory(t, dir, "root")
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	target := directory(t, dir, "rootfs")
	bind := &types.Mount{Type: "bind", Source: root, Options: []string{"rbind"}}
	for name, second := range map[string]*types.Mount{
		"no such type":  {Type: "none-such", Source: "x"},
		"a long option": {Type: "tmpfs", Source: "tmpfs", Options: []string{strings.Repeat("x", 5000)}},
		"id mapping":    {Type: "tmpfs", Source: "tmpfs", Options: []string{"uidmap=0:1:1"}},
		"a link":        {Type: "tmpfs", Source: "tmpfs", Target: "link/x"},
		"no loop file":  {Type: "erofs", Source: filepath.Join(dir, "none"), Options: []string{"loop", "ro"}},
	} {
		if err := Mount(t.Context(), target, []*types.Mount{bind, second}); err == nil {
			t.Errorf("%s: got nil, want an error", name)
		}
		noMounts(t, target)
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
			t.Errorf("%s: outside has %v, %v", name, entries, err)
		}
	}
	if err := Mount(t.Context(), target, make([]*types.Mount, maxMounts+1)); err == nil {
		t.Error("too many mounts: got nil, want an error")
	}
	noMounts(t, target)
}
