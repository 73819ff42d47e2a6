// Package sdnotify notifies systemd of the state of a service with Type=notify.
package sdnotify

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
)

// The states of a service.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// variable names the socket that systemd listens on.
const variable = "NOTIFY_SOCKET"

// Socket is systemd's socket; the zero value sends nothing.
type Socket struct{ address string }

// FromEnvironment returns the socket and removes it from the environment, so that no child process can speak for the
// service.
func FromEnvironment() (Socket, error) {
	s := Socket{os.Getenv(variable)}
	return s, os.Unsetenv(variable)
}

// Send sends a state. It never blocks: a datagram may be lost.
func (s Socket) Send(state string) error {
	if s.address == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}

// Service takes the socket and notifies systemd that the service stops when ctx ends. ready notifies systemd that it is
// ready. Failures are logged. done ends the watch of ctx.
func Service(ctx context.Context, log *slog.Logger) (ready func(), done func() bool, err error) {
	s, err := FromEnvironment()
	if err != nil {
		return nil, nil, err
	}
	tell := func(state string) {
		if err := s.Send(state); err != nil {
			log.Warn("cannot notify systemd", "state", state, "error", err)
		}
	}
	return func() { tell(Ready) }, context.AfterFunc(ctx, func() { tell(Stopping) }), nil
}
