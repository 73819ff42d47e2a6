package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

const shmPath = "/dev/shm"

// shm converts a bind mount of shared memory at /dev/shm: a tmpfs in the guest, of the source's size. Containers of one
// VM with the same source share it.
func (c *conversion) shm(m mount) (done bool, err error) {
	if m.at != shmPath {
		return false, nil
	}
	if m.Source == shmPath {
		c.guestBind(true, m, shmPath)
		return true, nil
	}
	size, err := c.Host.ShmBytes(m.Source)
	if err != nil {
		return false, fmt.Errorf("%s.source: size of %s: %w", m.field, shmPath, err)
	}
	if size <= 0 {
		return false, nil
	}
	hash := sha256.Sum256([]byte(m.Source))
	dir := containerv1.Dir{Name: "shm-" + hex.EncodeToString(hash[:16]), Medium: containerv1.Memory, Size: size, Mode: 0o1777}
	c.addOwn(true, containerv1.Mount{Destination: m.at, Source: dir, Options: m.guest})
	return true, nil
}

// guestsOwn converts bind mounts of the kernel's file systems: the container gets the guest's.
func (c *conversion) guestsOwn(m mount) (done bool, err error) {
	below := func(dir string) bool { return m.Source == dir || strings.HasPrefix(m.Source, dir+"/") }
	switch {
	case below("/sys/fs/cgroup") && m.Source != "/sys/fs/cgroup":
		c.ignore(m.field, fmt.Sprintf("%.200q: the guest has version 2 of cgroups, at /sys/fs/cgroup", m.Source))
		return true, nil
	case c.replacesCgroups(m):
		c.addMount(true, specs.Mount{Destination: m.at, Type: "sysfs", Source: "sysfs", Options: m.guest})
		return true, nil
	case below("/proc"), below("/sys"):
		c.guestBind(c.isDir(m.Source), m, m.Source)
		return true, nil
	case slices.Contains([]string{"/dev", "/dev/pts", "/dev/mqueue", shmPath}, m.Source):
		c.guestBind(true, m, m.Source)
		return true, nil
	}
	return false, nil
}

// replacesCgroups reports whether a mount of cgroups covers the one that a bind mount of /sys contains. The guest's kernel
// refuses to mount a file system on itself, and crun binds /sys only with all that is below.
func (c *conversion) replacesCgroups(m mount) bool {
	return m.Source == "/sys" && slices.ContainsFunc(c.spec.Mounts, func(other specs.Mount) bool {
		return (other.Type == "cgroup" || other.Type == "cgroup2") && path.Clean("/"+other.Destination) == m.at+"/fs/cgroup"
	})
}

// isDir reports whether a path of the host is a directory. One that the host lacks is taken for one.
func (c *conversion) isDir(path string) bool {
	node, err := c.Host.Node(path)
	return err != nil || node.Type == Dir
}

// guestBind adds a bind mount of a path of the guest. The path must be a constant, or below /proc or /sys.
func (c *conversion) guestBind(dir bool, m mount, source string) {
	bind := "bind"
	if m.recursive {
		bind = "rbind"
	}
	c.addMount(dir, specs.Mount{
		Destination: m.at, Type: "bind", Source: source, Options: append([]string{bind, "rprivate"}, m.guest...),
	})
}

// charMount converts a bind mount of a character device.
func (c *conversion) charMount(m mount, node Node) error {
	known, ok := c.node(int64(node.Major), int64(node.Minor))
	if !ok {
		return unsupported(m.field+".source", "%.200q is the device %d:%d, which a VM does not have", m.Source, node.Major, node.Minor)
	}
	c.guestBind(false, m, known.Path)
	if !known.Common {
		c.allow("c", known.Major, known.Minor, access(m.readOnly()))
	}
	return nil
}

// blockMount converts a bind mount of a block device.
func (c *conversion) blockMount(m mount, node Node) error {
	if m.Source == m.at && c.privileged() {
		c.ignore(m.field, "a privileged container has the devices of its VM, not the host's")
		return nil
	}
	c.disk(m.at, Disk{Path: m.Source, Major: node.Major, Minor: node.Minor, ReadOnly: m.readOnly()}, access(m.readOnly()), node.Mode, node.GID)
	return nil
}

func access(readOnly bool) string {
	if readOnly {
		return "r"
	}
	return "rwm"
}

// node returns the guest's character device with a number of the host.
func (c *conversion) node(major, minor int64) (oci.Node, bool) {
	if c.Nested && major == 10 && minor == 232 {
		return oci.Node{Path: "/dev/kvm", Major: major, Minor: minor, Mode: 0o666}, true
	}
	return oci.NodeOf(major, minor)
}
