package clients

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var mountCases = []contractCase{
	{"read-only root", readonlyRoot},
	{"mount points in a read-only root", readonlyMountPoints},
	{"volumes", volumes},
	{"a volume of another user", volumeOfUser},
	{"file systems of the kernel", kernelMounts},
	{"tmpfs", tmpfsMounts},
	{"masked and read-only paths", maskedPaths},
	{"changes of the host are seen", hostChanges},
	{"a missing source", missingSource},
}

func readonlyRoot(ctx context.Context, t *testing.T, c *contract) {
	spec := script("touch /x; touch /tmp/x; touch /dev/shm/x && echo shm")
	spec.Root.Readonly = true
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 0)
	if out, errs := k.stdout.all(ctx, t), k.stderr.all(ctx, t); out != "shm\n" || strings.Count(errs, "Read-only file system") != 2 {
		t.Errorf("with a read-only root: %q, %q", out, errs)
	}
}

// readonlyMountPoints: missing mount points are created before the root is read-only.
func readonlyMountPoints(ctx context.Context, t *testing.T, c *contract) {
	spec := script("touch /absent/x && echo made")
	spec.Root.Readonly = true
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/absent", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=1m"}})
	if got := c.output(ctx, t, spec); got != "made\n" {
		t.Errorf("output %q", got)
	}
}

// volumes: directories and files of the host are mounted with their options. A file is mounted alone.
func volumes(ctx context.Context, t *testing.T, c *contract) {
	dir := t.TempDir()
	for name, text := range map[string]string{"rw/old": "old\n", "ro/old": "old\n", "config": "text\n", "neighbour": "secret\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/rw/program", []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := script(`cat /rw/old /ro/old /etc/config; echo new >/rw/new; touch /ro/x; /rw/program; /rw2/program
		echo changed >/etc/config; ls /etc; mknod /rw/dev c 1 3; cat /rw/dev; true`)
	spec.Mounts = append(spec.Mounts,
		specs.Mount{Destination: "/rw", Type: "bind", Source: dir + "/rw", Options: []string{"rbind", "rprivate", "nodev"}},
		specs.Mount{Destination: "/rw2", Type: "none", Source: dir + "/rw", Options: []string{"bind", "noexec"}},
		specs.Mount{Destination: "/ro", Source: dir + "/ro", Options: []string{"rbind", "ro"}},
		specs.Mount{Destination: "/etc/config", Type: "bind", Source: dir + "/config", Options: []string{"rbind", "rprivate"}})
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 0)
	if got, want := k.stdout.all(ctx, t), "old\nold\ntext\nran\nconfig\ngroup\npasswd\ntext\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	errs := k.stderr.all(ctx, t)
	device := "'/rw/dev': Permission denied"
	if c.vm {
		device = "mknod: /rw/dev: Operation not permitted" // no VM makes a device on the host
	}
	for _, want := range []string{"/ro/x: Read-only file system", "/rw2/program: Permission denied", device} {
		if !strings.Contains(errs, want) {
			t.Errorf("errors %q, want %q", errs, want)
		}
	}
	for name, want := range map[string]string{"rw/new": "new\n", "config": "changed\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
			t.Errorf("%s on the host: %q, %v", name, text, err)
		}
	}
}

// volumeOfUser: owners and modes are the same inside and outside, and users other than root use a volume.
func volumeOfUser(ctx context.Context, t *testing.T, c *contract) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // other users must reach it
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, 1000, 2000); err != nil {
		t.Fatal(err)
	}
	spec := script("stat -c '%u %g %a' /v/own; touch /v/own/f && chmod 640 /v/own/f; mkdir -m 555 /v/d && mkdir /v/d/e; chown 5 /v/own/f")
	spec.Process.User = specs.User{UID: 1000, GID: 2000}
	spec.Process.Capabilities = nil
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/v", Type: "bind", Source: dir, Options: []string{"rbind"}})
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 1)
	if got := k.stdout.all(ctx, t); got != "1000 2000 700\n" {
		t.Errorf("owner and mode in the container: %q", got)
	}
	errs := k.stderr.all(ctx, t)
	if !strings.Contains(errs, "/v/d/e': Permission denied") || !strings.Contains(errs, "/v/own/f: Operation not permitted") {
		t.Errorf("errors %q", errs)
	}
	var info unix.Stat_t
	if err := unix.Stat(own+"/f", &info); err != nil || info.Uid != 1000 || info.Gid != 2000 || info.Mode&0o777 != 0o640 {
		t.Errorf("the new file on the host: %d %d %o, %v", info.Uid, info.Gid, info.Mode, err)
	}
}

// kernelMounts: the mounts of the specification have their types and options.
func kernelMounts(ctx context.Context, t *testing.T, c *contract) {
	mounts := map[string][]string{}
	for line := range strings.Lines(c.output(ctx, t, newSpec("cat", "/proc/mounts"))) {
		mounts[strings.Fields(line)[1]] = strings.Fields(line)[2:]
	}
	for dir, want := range map[string]string{
		"/proc": "proc nosuid nodev noexec", "/dev": "tmpfs nosuid", "/dev/pts": "devpts nosuid noexec gid=5 mode=620 ptmxmode=666",
		"/dev/shm": "tmpfs nosuid nodev noexec", "/dev/mqueue": "mqueue nosuid nodev noexec", "/sys": "sysfs ro nosuid nodev noexec",
		"/proc/sys": "proc ro",
	} {
		words, got := strings.Fields(want), mounts[dir]
		if len(got) == 0 {
			t.Errorf("%s is not mounted", dir)
			continue
		}
		options := "," + got[1] + ","
		if got[0] != words[0] {
			t.Errorf("%s has the type %s, want %s", dir, got[0], words[0])
		}
		for _, option := range words[1:] {
			if !strings.Contains(options, ","+option+",") {
				t.Errorf("%s has the options %s, want %s", dir, got[1], option)
			}
		}
	}
}

func tmpfsMounts(ctx context.Context, t *testing.T, c *contract) {
	spec := script(`stat -c %a /t; dd if=/dev/zero of=/t/f bs=64k count=100 2>/dev/null; stat -c %s /t/f
		stat -fc %T /dev/shm; dd if=/dev/zero of=/dev/shm/f bs=64k count=100 2>/dev/null; stat -c %s /dev/shm/f`)
	for i := range spec.Mounts {
		if m := &spec.Mounts[i]; m.Destination == "/dev/shm" {
			m.Options = []string{"nosuid", "noexec", "nodev", "mode=1777", "size=2048k"}
		}
	}
	small := specs.Mount{Destination: "/t", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=1m", "mode=1750"}}
	spec.Mounts = append(spec.Mounts, small)
	if got := c.output(ctx, t, spec); got != "1750\n1048576\ntmpfs\n2097152\n" {
		t.Errorf("mode, bytes that fit, type of /dev/shm and bytes that fit there: %q", got)
	}
}

func maskedPaths(ctx context.Context, t *testing.T, c *contract) {
	spec := script("cat /etc/text | wc -c; ls /home | wc -l; touch /etc/x; cat /etc/passwd | wc -l; ls /tmp")
	spec.Linux.MaskedPaths = append(spec.Linux.MaskedPaths, "/etc/text", "/home", "/absent")
	spec.Linux.ReadonlyPaths = append(spec.Linux.ReadonlyPaths, "/etc", "/absent")
	k := c.start(ctx, t, "c", spec)
	k.expectExit(ctx, t, 0)
	if out, errs := k.stdout.all(ctx, t), k.stderr.all(ctx, t); out != "0\n0\n2\n" || !strings.Contains(errs, "Read-only file system") {
		t.Errorf("masked and read-only paths: %q, %q", out, errs)
	}
}

// hostChanges: the host and the container see each other's changes of a volume.
func hostChanges(ctx context.Context, t *testing.T, c *contract) {
	dir := t.TempDir()
	spec := newSpec("sleep", "1000")
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/v", Type: "bind", Source: dir, Options: []string{"rbind"}})
	c.start(ctx, t, "c", spec)
	file := filepath.Join(dir, "f")
	for _, text := range []string{"one\n", "second\n", "3\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		until(ctx, t, "the container reads "+text, func() bool { return c.exec(ctx, t, "c", "cat /v/f; true") == text })
		c.exec(ctx, t, "c", "cat /v/f >/v/copy")
		if got, err := os.ReadFile(dir + "/copy"); err != nil || string(got) != text {
			t.Errorf("the container's copy: %q, %v, want %q", got, err, text)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		gone := func() bool { return c.exec(ctx, t, "c", "test -e /v/f || echo gone") == "gone\n" }
		until(ctx, t, "the container sees that the file is gone", gone)
	}
}

// missingSource: create fails, names the source, and leaves nothing.
func missingSource(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("true")
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/v", Type: "bind", Source: "/absent/source", Options: []string{"rbind"}})
	c.fails(ctx, t, 1, "/absent/source", "create", "--bundle", writeBundle(t, spec), "c")
	c.fails(ctx, t, 1, "container does not exist", "state", "c")
}
