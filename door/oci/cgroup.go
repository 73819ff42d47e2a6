package oci

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/unit"
	"github.com/bulkhead-project/bulkhead/internal/userns"
)

// group makes the client's cgroup for the container. The surrogate is in it, and the VM in a group below. A scope of
// systemd's cannot be empty: enterScope makes it.
func (c *creation) group(context.Context) error {
	at := c.plan.CgroupsPath
	if _, inner := userns.Inner(); inner && c.door.o.SystemdCgroup {
		return nil // the user's systemd knows neither this user namespace's root nor its processes
	}
	if c.door.o.SystemdCgroup {
		var err error
		if c.scope, err = scopeOf(at, c.o.ID); err != nil {
			return err
		}
		c.record.Scope, at = c.scope.Name, path.Join(hostcgroup.SlicePath(c.scope.Slice), c.scope.Name)
	}
	if at == "" {
		at = path.Join("/bulkhead-oci", strings.ReplaceAll(c.door.key(c.o.ID), "/", "-"))
	}
	g, err := hostcgroup.ClientGroup(at)
	if err != nil {
		return err
	}
	c.record.Cgroup = g.Dirs()
	if err := c.door.write(c.record); err != nil {
		return err
	}
	c.undo.Push("cgroup", c.record.ungroup)
	if c.scope == nil {
		err := g.Make()
		if _, inner := userns.Inner(); inner && denied(err) {
			c.door.o.Logger.Info("the container has no cgroup on the host, and its limits hold in the guest", "reason", err)
			c.record.Cgroup = nil
			return c.door.write(c.record)
		}
		if err != nil {
			return err
		}
	}
	c.cgroup = at
	return nil
}

// denied reports whether an ordinary user may not do something with the host's cgroups.
func denied(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)
}

// scopeOf returns the scope for SLICE:PREFIX:NAME. Empty parts have runc's defaults.
func scopeOf(text, id string) (*unit.Scope, error) {
	if text == "" {
		text = ":bulkhead:" + id
	}
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[2] == "" || strings.Contains(text, "/") {
		return nil, fmt.Errorf("linux.cgroupsPath %.200q must be SLICE:PREFIX:NAME with --systemd-cgroup", text)
	}
	slice, name := parts[0], parts[2]
	if slice == "" {
		slice = "system.slice"
	}
	if !strings.HasSuffix(slice, ".slice") {
		return nil, fmt.Errorf("linux.cgroupsPath %.200q: the slice must end with .slice", text)
	}
	if parts[1] != "" {
		name = parts[1] + "-" + name
	}
	return &unit.Scope{Name: name + ".scope", Slice: slice, Description: "Container " + id}, nil
}

// enterScope starts systemd's scope with the surrogate, and moves the surrogate to its group in the scope.
func (c *creation) enterScope(ctx context.Context) error {
	if c.scope == nil {
		return nil
	}
	c.scope.PID = c.helper.id.PID
	if err := c.scope.Start(ctx); err != nil {
		return err
	}
	return hostcgroup.At(c.record.Cgroup).Take(c.scope.PID)
}

// ungroup removes the client's cgroup.
func (r *record) ungroup(ctx context.Context) error {
	if r.Scope != "" {
		if err := unit.Stop(ctx, r.Scope); err != nil {
			return err
		}
	}
	return hostcgroup.At(r.Cgroup).Unmake(ctx)
}
