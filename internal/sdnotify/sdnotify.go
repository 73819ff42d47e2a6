// Package sdnotify tells systemd how far a service of Type=notify is.
package sdnotify

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
)

// What a service tells.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// variable names the socket that systemd listens on.
const variable = "NOTIFY_SOCKET"

// Socket is where a service tells of itself; the zero value is nowhere.
type Socket struct{ address string }

// Take takes the socket out of the environment, so that no process that is started later
// speaks for the service.
func Take() (Socket, error) {
	s := Socket{os.Getenv(variable)}
	return s, os.Unsetenv(variable)
}

// Tell sends a state. It does not block: a datagram is sent or is not.
func (s Socket) Tell(state string) error {
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

// Service takes the socket, has systemd told that the service stops when ctx ends, and returns what tells that
// it is ready. What cannot be told is logged. Done ends the watch of ctx.
func Service(ctx context.Context, log *slog.Logger) (ready func(), done func() bool, err error) {
	s, err := Take()
	if err != nil {
		return nil, nil, err
	}
	tell := func(state string) {
		if err := s.Tell(state); err != nil {
			log.Warn("cannot notify systemd", "state", state, "error", err)
		}
	}
	return func() { tell(Ready) }, context.AfterFunc(ctx, func() { tell(Stopping) }), nil
}
