package oci

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// group makes the client's cgroup for the container. The surrogate is in it, and the VM in a group below.
func (c *creation) group(context.Context) error {
	at := c.plan.CgroupsPath
	if at == "" {
		at = path.Join("/bulkhead-oci", strings.ReplaceAll(c.door.key(c.o.ID), "/", "-"))
	}
	if c.door.o.SystemdCgroup && strings.Count(at, ":") == 2 {
		var err error
		if at, err = unitPath(at); err != nil {
			return err
		}
	}
	g, err := hostcgroup.ClientGroup(at)
	if err != nil {
		return err
	}
	c.record.Cgroup = g.Dirs()
	if err := c.door.write(c.record); err != nil {
		return err
	}
	c.undo.Push("cgroup", g.Unmake)
	if err := g.Make(); err != nil {
		return err
	}
	c.cgroup = at
	return nil
}

// unitPath returns the path of the scope that systemd has for SLICE:PREFIX:NAME.
func unitPath(text string) (string, error) {
	parts := strings.Split(text, ":")
	slice, prefix, name := parts[0], parts[1], parts[2]
	if name == "" || strings.Contains(text, "/") {
		return "", fmt.Errorf("linux.cgroupsPath %.200q must be SLICE:PREFIX:NAME", text)
	}
	if slice == "" {
		slice = "system.slice"
	}
	if prefix != "" {
		name = prefix + "-" + name
	}
	return path.Join(hostcgroup.SlicePath(slice), name+".scope"), nil
}
