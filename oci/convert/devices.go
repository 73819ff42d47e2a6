package convert

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// Disk is a block device of the host that becomes a disk of the VM. A guest's mount names it by DiskName.
type Disk struct {
	// Path is the device's path at the client. It is empty if only the number is known.
	Path         string
	Major, Minor uint32
	ReadOnly     bool
}

// DiskName returns the name of the containerv1.Block for Plan.Disks[n].
func DiskName(n int) string { return "/disk/" + strconv.Itoa(n) }

// disk adds a block device at a path of the container.
func (c *conversion) disk(at string, d Disk, access string, mode, group uint32) {
	if mode == 0 {
		mode = 0o660
	}
	c.addOwn(false, containerv1.Mount{Destination: at, Group: int(min(group, 1<<31-1)), Source: containerv1.Block{
		Name: DiskName(len(c.plan.Disks)), Access: access, Mode: mode & 0o7777, ReadOnly: d.ReadOnly,
	}})
	c.plan.Disks = append(c.plan.Disks, d)
}

// devices converts the device nodes and the rules for devices.
func (c *conversion) devices() error {
	privileged := c.privileged()
	c.linux.Devices = nil
	dropped := 0
	for i, d := range c.host.Devices {
		field := fmt.Sprintf("linux.devices[%d]", i)
		at := path.Clean("/" + d.Path)
		if d.Path == "" || at == "/" {
			return invalid(field+".path", "%.200q", d.Path)
		}
		if d.Major < 0 || d.Minor < 0 || d.Major > 1<<12 || d.Minor > 1<<20 {
			return invalid(field, "number %d:%d of %.200s", d.Major, d.Minor, at)
		}
		known, ok := c.node(d.Major, d.Minor)
		switch {
		case d.Type == "p":
			d.Major, d.Minor = 0, 0
		case d.Type == "c" && (ok || d.Major == 5 && d.Minor <= 2 || d.Major == 136), d.Type == "u" && ok:
		case d.Type == "b" && !privileged:
			c.namedDisk(at, d)
			continue
		case (d.Type == "c" || d.Type == "b" || d.Type == "u") && privileged:
			dropped++
			continue
		case d.Type == "c" || d.Type == "u":
			return unsupported(field, "%.200s is the device %d:%d, which a VM does not have", at, d.Major, d.Minor)
		default:
			return invalid(field+".type", "%.32q of %.200s", d.Type, at)
		}
		if ok && d.Type != "p" && !strings.HasPrefix(at, "/dev/") {
			// The root is shared with the host, and gets no device nodes.
			c.guestBind(false, mount{at: at}, known.Path)
			continue
		}
		d.Path = at
		c.linux.Devices = append(c.linux.Devices, d)
	}
	if dropped > 0 {
		c.ignore("linux.devices", fmt.Sprintf("%d devices of the host: a container that may use all devices gets all of its VM", dropped))
	}
	if privileged {
		c.guest.Annotations[agentv1.AllDevices] = "true"
	}
	c.rules()
	return nil
}

// namedDisk adds a block device with the access that its rules give.
func (c *conversion) namedDisk(at string, d specs.LinuxDevice) {
	mode, group := uint32(0), uint32(0)
	if d.FileMode != nil {
		mode = uint32(d.FileMode.Perm())
	}
	if d.GID != nil {
		group = *d.GID
	}
	access := c.accessTo("b", d.Major, d.Minor)
	if access == "" {
		access = "m" // a node that cannot be opened
	}
	of := Disk{Major: uint32(d.Major), Minor: uint32(d.Minor), ReadOnly: !strings.Contains(access, "w")}
	c.disk(at, of, access, mode, group)
}
