package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
)

// applets are the programs of a bundle.
const applets = "awk cat chmod chown cut date dd echo env expr false grep head hostname httpd id ip kill ls mkdir mkfifo mknod mount " +
	"nc nproc nslookup od ping pwd ps readlink rm sed seq setsid sh sleep sort stat stty sysctl tail tee test touch tr true tty umount " +
	"uname usleep wc wget"

var program = sync.OnceValues(func() ([]byte, error) { return os.ReadFile(busybox.Binary) })

// newRoot creates a root file system with busybox in dir.
func newRoot(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "home/demo"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"bin/busybox": string(binary),
		"etc/passwd":  "root:x:0:0:root:/root:/bin/sh\ndemo:x:1000:1000:demo:/home/demo:/bin/sh\n",
		"etc/group":   "root:x:0:\ndemo:x:1000:\nextra:x:2000:demo\n",
		"etc/text":    "not a program\n",
	} {
		mode := os.FileMode(0o644)
		if name == "bin/busybox" {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range strings.Fields(applets) {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(dir, "home/demo"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o1777); err != nil { //nolint:gosec // as /tmp must be
		t.Fatal(err)
	}
}

// capabilities are docker's default ones.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP",
	"CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// newSpec returns a container's configuration like docker's, with a network namespace of its own.
func newSpec(args ...string) *specs.Spec {
	flags := func(more ...string) []string { return append([]string{"nosuid", "noexec", "nodev"}, more...) }
	return &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			Args: args, Cwd: "/", Env: []string{"PATH=/bin", "HOME=/root"},
			Capabilities: &specs.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities},
		},
		Root:     &specs.Root{Path: "rootfs"},
		Hostname: "contract",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: flags()},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
				Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: flags("mode=1777", "size=65536k")},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: flags()},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: flags("ro")},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: flags("ro", "relatime")},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace},
			},
			Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			MaskedPaths: []string{
				"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi",
				"/sys/firmware",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

// script makes a shell script the program of a container.
func script(text string) *specs.Spec { return newSpec("sh", "-c", text) }

// writeBundle writes a configuration and a root file system into a new directory, and returns it.
func writeBundle(t *testing.T, spec *specs.Spec) string {
	t.Helper()
	dir := t.TempDir()
	newRoot(t, filepath.Join(dir, "rootfs"))
	writeConfig(t, dir, spec)
	return dir
}

// groups counts the cgroups of containers.
var groups atomic.Int64

// writeConfig writes the configuration of a bundle. A container without a cgroup gets its own.
func writeConfig(t *testing.T, bundle string, spec *specs.Spec) {
	t.Helper()
	if spec.Linux.CgroupsPath == "" {
		spec.Linux.CgroupsPath = fmt.Sprintf("/contract/%d", groups.Add(1))
	}
	writeJSON(t, filepath.Join(bundle, "config.json"), spec)
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
