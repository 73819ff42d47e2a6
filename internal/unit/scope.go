package unit

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"
)

// Scope is a scope for a process of a client.
type Scope struct {
	Name, Slice, Description string
	PID                      int
}

// Start starts the scope. It needs root.
func (s Scope) Start(ctx context.Context) error {
	err := run(ctx, func(m *client) error {
		properties := scope(s.Description, []uint32{uint32(s.PID)})
		if s.Slice != "" {
			properties = append(properties, property{"Slice", dbus.MakeVariant(s.Slice)})
		}
		return m.start(s.Name, properties...)
	})
	if err != nil {
		return fmt.Errorf("ask systemd for the scope %.200s: %w", s.Name, err)
	}
	return nil
}

// scope returns the properties of a scope with a delegated cgroup.
func scope(description string, pids []uint32) []property {
	return []property{
		{"Description", dbus.MakeVariant(description)},
		{"Delegate", dbus.MakeVariant(true)},
		{"PIDs", dbus.MakeVariant(pids)},
		collect,
	}
}

// Stop stops a unit and its processes. It succeeds if the unit does not exist.
func Stop(ctx context.Context, name string) error {
	err := run(ctx, func(m *client) error {
		err := m.job(".StopUnit", name, "replace")
		if failed(err, absent) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ask systemd to stop %.200s: %w", name, err)
	}
	return nil
}
