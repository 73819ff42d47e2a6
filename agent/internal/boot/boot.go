// Package boot sets up a new guest once, before the agent can serve: file systems, modules, cgroups. All of it is part
// of the template from which VMs are cloned, so nothing here may be random or read the kernel's boot id.
package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
)

// Setup sets up the guest and returns the path of the channel's port and the VM's network interface.
func Setup(portName string) (port string, net Interface, err error) {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"mount", mounts}, {"load modules", modules}, {"root", newRoot},
		{"cgroups", cgroups}, {"limits", limits}, {"rest", rest}, {"network", net.network},
	} {
		if err := step.do(); err != nil {
			return "", net, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	port, err = Port(portName)
	return port, net, err
}

func mounts() error {
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		data     string
	}{
		{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=0755"},
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"mqueue", "/dev/mqueue", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"cgroup2", cgroup.Mount, unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "memory_recursiveprot"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.data); err != nil && err != unix.EBUSY {
			return fmt.Errorf("%s: %w", m.at, err)
		}
	}
	return nil
}

// modules loads the modules of the list, in order.
func modules() error {
	list, err := os.ReadFile("/etc/modules.load")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		path, parameters, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := load(path, parameters); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func load(path, parameters string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), parameters, 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

// newRoot mounts a root from which pivot_root works, unlike the initramfs.
func newRoot() error {
	const root = "/mnt"
	if err := unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("chdir: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("chdir: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make private: %w", err)
	}
	return nil
}

// Pods is the parent cgroup of the containers' cgroups.
const Pods = "/pod"

// cgroups moves this process into a leaf, because a cgroup that distributes resources must not contain processes, and
// enables every controller for the containers.
func cgroups() error {
	leaf := filepath.Join(cgroup.Mount, "agent")
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("1"), 0); err != nil {
		return err
	}
	pods := cgroup.Mount + Pods
	if err := os.Mkdir(pods, 0o755); err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(cgroup.Mount, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var all []string
	for name := range strings.FieldsSeq(string(have)) {
		all = append(all, "+"+name)
	}
	for _, dir := range []string{cgroup.Mount, pods} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(strings.Join(all, " ")), 0); err != nil {
			return err
		}
	}
	return nil
}

// limits raises the limit of open files, which the kernel sets to 4,096. The agent has files for each process and
// connection, and containers without their own limit inherit it.
func limits() error {
	const files = 1 << 20 // the kernel's maximum
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files})
}

// rest keeps an idle VM idle: it disables proactive compaction, which runs twice a second. A kernel without the setting
// does not compact proactively.
func rest() error {
	err := os.WriteFile("/proc/sys/vm/compaction_proactiveness", []byte("0"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Port returns the device of the virtio-serial port of that name.
func Port(name string) (string, error) {
	ports, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, file := range ports {
		data, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(data)) == name {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(file))), nil
		}
	}
	return "", fmt.Errorf("no virtio port %q among %d", name, len(ports))
}
