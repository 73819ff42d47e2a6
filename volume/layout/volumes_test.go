package layout

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestOf(t *testing.T) {
	const (
		pods = "/var/lib/kubelet/pods/u/volumes/"
		own  = "/run/own/u/"
	)
	dirs := Dirs{Kubelet: "/var/lib/kubelet", Own: "/run/own"}
	for _, test := range []struct {
		name, path string
		want       Volume
		ok         bool
	}{
		{name: "emptyDir", path: pods + "kubernetes.io~empty-dir/v", want: Volume{Name: "v", Dir: pods + "kubernetes.io~empty-dir/v"}, ok: true},
		{
			name: "configMap", path: pods + "kubernetes.io~configmap/v",
			want: Volume{Name: "v", Dir: pods + "kubernetes.io~configmap/v", Files: true}, ok: true,
		},
		{
			name: "part of a secret", path: pods + "kubernetes.io~secret/v/a/b",
			want: Volume{Name: "v", Dir: pods + "kubernetes.io~secret/v", SubPath: "a/b", Files: true}, ok: true,
		},
		{
			name: "unclean", path: pods + "kubernetes.io~downward-api/v/./x/",
			want: Volume{Name: "v", Dir: pods + "kubernetes.io~downward-api/v", SubPath: "x", Files: true}, ok: true,
		},
		{
			name: "a part named as a kind", path: pods + "kubernetes.io~empty-dir/v/kubernetes.io~secret/s",
			want: Volume{Name: "v", Dir: pods + "kubernetes.io~empty-dir/v", SubPath: "kubernetes.io~secret/s"}, ok: true,
		},
		{
			name: "of package volume", path: own + "kubernetes.io~projected/v",
			want: Volume{Name: "v", Dir: own + "kubernetes.io~projected/v", Files: true}, ok: true,
		},
		{name: "named so elsewhere", path: "/x/kubernetes.io~empty-dir/y"},
		{name: "named so in another root", path: "/var/lib/kubelet2/pods/u/volumes/kubernetes.io~empty-dir/v"},
		{name: "named so deeper", path: pods + "kubernetes.io~csi/v/kubernetes.io~empty-dir/y"},
		{name: "another kind", path: pods + "kubernetes.io~csi/v"},
		{name: "no name", path: pods + "kubernetes.io~secret"},
		{name: "climbing to no name", path: pods + "kubernetes.io~secret/.."},
		{name: "climbing out", path: pods + "kubernetes.io~secret/v/../../../x"},
		{name: "no pod of package volume", path: "/run/own/kubernetes.io~secret/v"},
		{name: "the root", path: "/"},
		{name: "nothing", path: ""},
	} {
		got, ok, err := dirs.Of(test.path)
		if err != nil || ok != test.ok || ok && !cmp.Equal(got, test.want) {
			t.Errorf("%s: %+v %v %v, want %+v %v", test.name, got, ok, err, test.want, test.ok)
		}
	}
	if _, ok, err := (Dirs{}).Of(pods + "kubernetes.io~empty-dir/v"); ok || err != nil {
		t.Errorf("without directories: %v %v", ok, err)
	}
}

// TestSubPaths makes the mounts of a kubelet.
func TestSubPaths(t *testing.T) {
	root := t.TempDir()
	pod := filepath.Join(root, "pods", "u")
	mount := func(source, at string) {
		t.Helper()
		if err := unix.Mount(source, at, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("mount %s (this test needs root): %v", at, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	mkdir := func(parts ...string) string {
		t.Helper()
		dir := filepath.Join(append([]string{pod}, parts...)...)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	empty := mkdir("volumes", EmptyDir, "e")
	files := mkdir("volumes", Secret, "s")
	if err := unix.Mount("tmpfs", files, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mount a tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(files, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	mkdir("volumes", EmptyDir, "e", "a", "b")
	version := mkdir("volumes", Secret, "s", "..2026_01_02")
	if err := os.WriteFile(filepath.Join(version, "key"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	part, whole := mkdir("volume-subpaths", "e", "main", "0"), mkdir("volume-subpaths", "e", "main", "1")
	key := filepath.Join(mkdir("volume-subpaths", "s", "main"), "0")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign, none := mkdir("volume-subpaths", "e", "main", "2"), mkdir("volume-subpaths", "e", "main", "3")
	mount(filepath.Join(empty, "a", "b"), part)
	mount(empty, whole)
	mount(filepath.Join(version, "key"), key)
	mount("/etc", foreign)
	dirs := Dirs{Kubelet: root}
	for _, test := range []struct {
		name, path string
		want       Volume
	}{
		{name: "a part of an emptyDir", path: part, want: Volume{Name: "e", Dir: empty, SubPath: "a/b"}},
		{name: "all of an emptyDir", path: whole, want: Volume{Name: "e", Dir: empty}},
		{name: "a file of a secret", path: key, want: Volume{Name: "s", Dir: files, SubPath: "key", Files: true}},
	} {
		got, ok, err := dirs.Of(test.path)
		if err != nil || !ok || !cmp.Equal(got, test.want) {
			t.Errorf("%s: %+v %v %v, want %+v", test.name, got, ok, err, test.want)
		}
	}
	for name, path := range map[string]string{"another directory of the host": foreign, "no mount": none} {
		if got, ok, err := dirs.Of(path); ok || !errors.Is(err, ErrUnknownSubPath) {
			t.Errorf("%s: %+v %v %v", name, got, ok, err)
		}
	}
}
