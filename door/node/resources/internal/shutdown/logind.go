package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

// Names of logind on the bus.
const (
	service   = "org.freedesktop.login1"
	manager   = service + ".Manager"
	path      = dbus.ObjectPath("/org/freedesktop/login1")
	preparing = "PrepareForShutdown"
)

// Names of the bus itself.
const (
	busName      = "org.freedesktop.DBus"
	ownerChanged = "NameOwnerChanged"
)

// callTimeout bounds a call of logind.
const callTimeout = 10 * time.Second

// logind is a connection to logind. It is not safe for concurrent use.
type logind struct {
	conn    *dbus.Conn
	signals *signals
	owner   string   // logind's unique name on the bus
	lock    *os.File // the inhibitor lock; nil if not held
}

// connect subscribes to logind's shutdown signals on the bus with that address. The caller must ask down for the state
// before.
func connect(ctx context.Context, address string) (*logind, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	h := newSignals()
	var conn *dbus.Conn
	var err error
	if address == "" {
		conn, err = dbus.ConnectSystemBus(dbus.WithSignalHandler(h))
	} else {
		conn, err = dbus.Connect(address, dbus.WithSignalHandler(h))
	}
	if err != nil {
		return nil, fmt.Errorf("connect to D-Bus: %w", err)
	}
	l := &logind{conn: conn, signals: h}
	if err := l.subscribe(ctx); err != nil {
		l.close()
		return nil, fmt.Errorf("subscribe to logind's signals: %w", err)
	}
	return l, nil
}

// subscribe subscribes to the signals and learns logind's unique name, their only valid sender.
func (l *logind) subscribe(ctx context.Context) error {
	err := l.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(busName), dbus.WithMatchInterface(busName),
		dbus.WithMatchMember(ownerChanged), dbus.WithMatchArg(0, service))
	if err != nil {
		return err
	}
	err = l.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(service), dbus.WithMatchInterface(manager),
		dbus.WithMatchMember(preparing), dbus.WithMatchObjectPath(path))
	if err != nil {
		return err
	}
	// This call starts a logind that is not running yet.
	if err := l.conn.Object(service, path).CallWithContext(ctx, "org.freedesktop.DBus.Peer.Ping", 0).Err; err != nil {
		return err
	}
	if err := l.conn.BusObject().CallWithContext(ctx, busName+".GetNameOwner", 0, service).Store(&l.owner); err != nil {
		return err
	}
	l.signals.from.Store(&l.owner)
	return nil
}

func (l *logind) close() {
	l.release()
	_ = l.conn.Close() // everything was sent
}

// delay returns the longest time that logind delays a shutdown.
func (l *logind) delay(ctx context.Context) (time.Duration, error) {
	us, err := property[uint64](ctx, l, "InhibitDelayMaxUSec")
	return time.Duration(min(us, 1<<40)) * time.Microsecond, err
}

// down reports whether the host is about to shut down.
func (l *logind) down(ctx context.Context) (bool, error) {
	return property[bool](ctx, l, "PreparingForShutdown")
}

// property returns a property of logind.
func property[T any](ctx context.Context, l *logind, name string) (value T, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var got dbus.Variant
	call := l.conn.Object(l.owner, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, name)
	if err := call.Store(&got); err != nil {
		return value, fmt.Errorf("ask logind for %s: %w", name, err)
	}
	value, is := got.Value().(T)
	if !is {
		return value, fmt.Errorf("ask logind for %s: unexpected type %s", name, got.Signature())
	}
	return value, nil
}

// inhibit takes the inhibitor lock unless it is already held.
func (l *logind) inhibit(ctx context.Context) error {
	if l.lock != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var fd dbus.UnixFD
	call := l.conn.Object(l.owner, path).CallWithContext(ctx, manager+".Inhibit", 0,
		"shutdown", "bulkhead node", "Bulkhead ends the node's pods", "delay")
	if err := call.Store(&fd); err != nil {
		return fmt.Errorf("take logind's inhibitor lock: %w", err)
	}
	l.lock = os.NewFile(uintptr(fd), "inhibitor lock")
	return nil
}

// release releases the inhibitor lock, so that the host can shut down.
func (l *logind) release() {
	if l.lock != nil {
		_ = l.lock.Close() // not written to
		l.lock = nil
	}
}

// next waits for logind's next signal. It returns true for a shutdown, and false for a cancelled one.
func (l *logind) next(ctx context.Context) (down bool, err error) {
	for {
		select {
		case owner := <-l.signals.owners:
			if owner != l.owner {
				return false, errors.New("logind has stopped")
			}
		case down := <-l.signals.shutdowns:
			return down, nil
		case <-l.conn.Context().Done():
			return false, errors.New("the connection to D-Bus was closed")
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
