package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

// The names of logind on the bus.
const (
	service   = "org.freedesktop.login1"
	manager   = service + ".Manager"
	path      = dbus.ObjectPath("/org/freedesktop/login1")
	preparing = "PrepareForShutdown"
)

// callTimeout bounds a call of logind.
const callTimeout = 10 * time.Second

// logind is a connection to it. Its methods are called by one at a time.
type logind struct {
	conn    *dbus.Conn
	signals chan *dbus.Signal
	lock    *os.File // the inhibitor's, nil for none
}

// connect follows logind's word that the machine goes down, on the bus of that address.
func connect(ctx context.Context, address string) (*logind, error) {
	var conn *dbus.Conn
	var err error
	if address == "" {
		conn, err = dbus.ConnectSystemBus()
	} else {
		conn, err = dbus.Connect(address)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to D-Bus: %w", err)
	}
	l := &logind{conn: conn, signals: make(chan *dbus.Signal, 16)}
	conn.Signal(l.signals)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface(manager), dbus.WithMatchMember(preparing), dbus.WithMatchObjectPath(path))
	if err != nil {
		l.close()
		return nil, fmt.Errorf("follow logind: %w", err)
	}
	return l, nil
}

func (l *logind) close() {
	l.release()
	_ = l.conn.Close() // nothing is sent any more
}

// delay is how long logind holds up the machine's end at most.
func (l *logind) delay(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var value dbus.Variant
	call := l.conn.Object(service, path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, "InhibitDelayMaxUSec")
	if err := call.Store(&value); err != nil {
		return 0, fmt.Errorf("ask logind for InhibitDelayMaxUSec: %w", err)
	}
	us, ok := value.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("ask logind for InhibitDelayMaxUSec: it is a %s", value.Signature())
	}
	return time.Duration(min(us, 1<<40)) * time.Microsecond, nil
}

// inhibit holds the machine's end up from now on, if it does not already.
func (l *logind) inhibit(ctx context.Context) error {
	if l.lock != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var fd dbus.UnixFD
	call := l.conn.Object(service, path).CallWithContext(ctx, manager+".Inhibit", 0,
		"shutdown", "bulkhead node", "Bulkhead ends the node's pods", "delay")
	if err := call.Store(&fd); err != nil {
		return fmt.Errorf("ask logind to hold up the machine's end: %w", err)
	}
	l.lock = os.NewFile(uintptr(fd), "inhibitor lock")
	return nil
}

// release lets the machine go down.
func (l *logind) release() {
	if l.lock != nil {
		_ = l.lock.Close() // nothing was written
		l.lock = nil
	}
}

// next is logind's next word: true that the machine goes down, false that it does not after all.
func (l *logind) next(ctx context.Context) (down bool, err error) {
	for {
		select {
		case signal, open := <-l.signals:
			if !open {
				return false, errors.New("the connection to D-Bus has ended")
			}
			if signal.Name != manager+"."+preparing || len(signal.Body) != 1 {
				continue
			}
			if down, is := signal.Body[0].(bool); is {
				return down, nil
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
