package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/oci"
)

// whole makes a request one of an OCI client, with these mounts.
func whole(mounts ...containerv1.Mount) func(*engine.ContainerRequest) {
	return func(r *engine.ContainerRequest) {
		r.Spec.Annotations = map[string]string{agentv1.Verbatim: "true"}
		r.Mounts = append(r.Mounts, mounts...)
	}
}

// TestWholeContainer checks a container of an OCI client on a live tree, writable or read-only. Single files are mounted
// over files that exist and over missing ones. The tree shows these mounts and its own files only.
func TestWholeContainer(t *testing.T) {
	p := newBlockPods(t, enginetest.Clones)
	pod := p.pod("one").ID
	given := realDir(t)
	for name, text := range map[string]string{"hosts": "1.2.3.4 here\n", "resolv.conf": "nameserver 9.9.9.9\n", "hostname": "mine\n"} {
		if err := os.WriteFile(filepath.Join(given, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, at string, options ...string) containerv1.Mount {
		return containerv1.Mount{
			Destination: at, Source: containerv1.Share{Name: filepath.Join(given, name)}, Options: append([]string{"rbind"}, options...),
		}
	}
	tmpfs := func(name, at string, options ...string) containerv1.Mount {
		return containerv1.Mount{Destination: at, Source: containerv1.System{Type: "tmpfs", Source: name}, Options: options}
	}
	mounts := []containerv1.Mount{
		file("hosts", "/etc/hosts", "rw"), file("resolv.conf", "/etc/resolv.conf", "ro"), file("hostname", "/new/etc/hostname", "ro"),
		{Destination: "/new/dir", Source: containerv1.Share{Name: given}, Options: []string{"rbind", "ro"}},
		tmpfs("tmpfs", "/new/tmp", "size=1m", "mode=700"),
		tmpfs("shm", "/dev/shm", "nosuid", "noexec", "nodev", "mode=1777", "size=2m"),
	}
	const look = `cat /etc/hosts /etc/resolv.conf /new/etc/hostname; ls /new/dir /etc
		df -k /dev/shm | tail -n 1 | sed 's/  */ /g' | cut -d' ' -f2
		[ -e /etc/machine-id ] || echo none; [ -e /dev/termination-log ] || echo none; hostname
		echo x >>/etc/resolv.conf; echo x >/new/dir/x; echo 5.6.7.8 there >>/etc/hosts; echo x >/new/tmp/x && cat /new/tmp/x`
	seen := func(etc string) string {
		return "1.2.3.4 here\nnameserver 9.9.9.9\nmine\n/etc:\n" + etc + "\n\n/new/dir:\nhostname\nhosts\nresolv.conf\n2048\nnone\nnone\nown\n" +
			"sh: can't create /etc/resolv.conf: Read-only file system\nsh: can't create /new/dir/x: Read-only file system\nx"
	}
	uts := func(r *engine.ContainerRequest) {
		r.Spec.Hostname = "own"
		r.Spec.Linux.Namespaces = append(r.Spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UTSNamespace})
	}
	for name, readonly := range map[string]bool{"writable": false, "readonly": true} {
		tree := busyboxTree(t, realDir(t))
		before := names(t, filepath.Join(tree, "etc"))
		closed := func(r *engine.ContainerRequest) { r.Spec.Root = &specs.Root{Path: "rootfs", Readonly: readonly} }
		id := p.must(p.on(pod, name, containerv1.Share{Name: tree}, whole(mounts...), uts, closed))
		p.says(p.sh(id, look), seen(names(t, filepath.Join(tree, "etc"))))
		p.same(filepath.Join(given, "hosts"), "1.2.3.4 here\n5.6.7.8 there")
		if err := os.WriteFile(filepath.Join(given, "hosts"), []byte("1.2.3.4 here\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		// Mount points remain in the tree, as with other runtimes.
		if after := names(t, filepath.Join(tree, "etc")); after != "group\nhosts\npasswd\nresolv.conf" || before != "group\npasswd" {
			t.Errorf("%s: the tree's /etc has %q, before %q", name, after, before)
		}
		if info, err := os.Stat(filepath.Join(tree, "new/etc/hostname")); err != nil || !info.Mode().IsRegular() || info.Size() != 0 {
			t.Errorf("%s: mount point %v, %v", name, info, err)
		}
		out := p.sh(id, "echo x >/written; cat /written")
		if readonly {
			p.says(out, "sh: can't create /written: Read-only file system\ncat: can't open '/written': No such file or directory")
		} else {
			p.says(out, "x")
		}
		p.remove(id)
	}
}

// TestWholeContainerStarts checks that a hook runs inside a container of an OCI client, and that its creation fails
// without its command.
func TestWholeContainerStarts(t *testing.T) {
	p := newBlockPods(t, enginetest.Clones)
	pod := p.pod("one").ID
	tree := busyboxTree(t, realDir(t))
	root := containerv1.Share{Name: tree}
	hook := specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", "echo hooked >/hooked"}}
	p.must(p.on(pod, "a", root, whole(), func(r *engine.ContainerRequest) {
		r.Spec.Hooks = &specs.Hooks{StartContainer: []specs.Hook{hook}}
	}))
	until(t, "the hook", func() bool {
		text, err := os.ReadFile(filepath.Join(tree, "hooked"))
		return err == nil && string(text) == "hooked\n"
	})
	for says, change := range map[string]func(*specs.Spec){
		`exec: "/none": stat /none: no such file or directory`: func(s *specs.Spec) { s.Process.Args = []string{"/none"} },
		`exec: "none": executable file not found in $PATH`:     func(s *specs.Spec) { s.Process.Args = []string{"none"} },
		`exec: "/etc/passwd": permission denied`:               func(s *specs.Spec) { s.Process.Args = []string{"/etc/passwd"} },
		"/dev/host (c 240:9)": func(s *specs.Spec) {
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/host", Type: "c", Major: 240, Minor: 9}}
		},
	} {
		spec, err := oci.New("", "sleep", "1000")
		if err != nil {
			t.Fatal(err)
		}
		change(spec)
		r := engine.ContainerRequest{Key: "b/0", Name: "b", Spec: spec, Root: root, Stdio: containerv1.Discard{}}
		whole()(&r)
		_, err = p.CreateContainer(p.ctx, pod, r)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}
