package unit

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/userns"
)

// Service is a program that systemd starts. It must notify systemd when it is ready (package sdnotify).
type Service struct {
	Name, Description, Program string
	Environment                []string
	// Log is the file to which its output is appended.
	Log string
}

// command is a program of a unit, on the bus.
type command struct {
	Path          string
	Args          []string
	IgnoreFailure bool
}

// Start starts the service and waits until it is ready. Processes that it leaves live on.
func (s Service) Start(ctx context.Context) error {
	err := run(ctx, func(m *client) error {
		return m.start(s.Name,
			property{"Description", dbus.MakeVariant(s.Description)},
			property{"Type", dbus.MakeVariant("notify")},
			property{"ExecStart", dbus.MakeVariant([]command{{s.Program, []string{s.Program}, false}})},
			property{"Environment", dbus.MakeVariant(s.Environment)},
			property{"WorkingDirectory", dbus.MakeVariant("/")},
			property{"StandardOutputFileToAppend", dbus.MakeVariant(s.Log)},
			property{"StandardErrorFileToAppend", dbus.MakeVariant(s.Log)},
			property{"KillMode", dbus.MakeVariant("process")},
			collect,
		)
	})
	if err != nil {
		return fmt.Errorf("ask systemd for the service %s: %w", s.Name, err)
	}
	return nil
}

// Sees reports whether systemd starts processes with the files and the network of this process.
func Sees() bool {
	for _, kind := range []string{"mnt", "net"} {
		var its, own unix.Stat_t
		if unix.Stat("/proc/1/ns/"+kind, &its) != nil || unix.Stat("/proc/self/ns/"+kind, &own) != nil || its.Ino != own.Ino {
			return false
		}
	}
	_, err := address()
	return err == nil && userns.HostRoot()
}
