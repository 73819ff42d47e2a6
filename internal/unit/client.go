package unit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/bulkhead-project/bulkhead/internal/userns"
)

// address returns the address of the bus of this user's manager, or ErrNone.
func address() (string, error) {
	at := "unix:path=/run/dbus/system_bus_socket"
	if uid := owner(); uid != 0 {
		at = "unix:path=/run/user/" + strconv.Itoa(uid) + "/bus"
	}
	for _, dir := range []string{"/run/systemd/system", strings.TrimPrefix(at, "unix:path=")} {
		if _, err := os.Stat(dir); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNone, err)
		}
	}
	return at, nil
}

// owner returns the user that the host knows this process by.
func owner() int {
	if uid, inner := userns.Inner(); inner {
		return uid
	}
	return os.Geteuid()
}

// property is a unit's property on the bus.
type property struct {
	Name  string
	Value dbus.Variant
}

// collect lets systemd forget a unit that has ended.
var collect = property{"CollectMode", dbus.MakeVariant("inactive-or-failed")}

// auxiliary is a further unit of a job; none is used.
type auxiliary struct {
	Name       string
	Properties []property
}

// client is a connection to systemd.
type client struct {
	ctx     context.Context
	cancel  func()
	conn    *dbus.Conn
	systemd dbus.BusObject
	ended   chan *dbus.Signal
}

// run connects to this user's systemd for the time of f.
func run(ctx context.Context, f func(*client) error) error {
	at, err := address()
	if err != nil {
		return err
	}
	m, err := open(ctx, at)
	if err != nil {
		return err
	}
	defer m.close()
	return f(m)
}

// open connects to systemd and subscribes to the ends of its jobs.
func open(ctx context.Context, address string) (_ *client, err error) {
	m := &client{ended: make(chan *dbus.Signal, 64)}
	m.ctx, m.cancel = context.WithTimeout(ctx, callTimeout)
	if m.conn, err = dbus.Connect(address, dbus.WithContext(m.ctx)); err != nil {
		m.cancel()
		return nil, fmt.Errorf("connect to D-Bus: %w", err)
	}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	m.conn.Signal(m.ended)
	err = m.conn.AddMatchSignalContext(m.ctx, dbus.WithMatchInterface(manager), dbus.WithMatchMember("JobRemoved"))
	if err != nil {
		return nil, err
	}
	m.systemd = m.conn.Object(service, path)
	return m, m.systemd.CallWithContext(m.ctx, manager+".Subscribe", 0).Err
}

func (m *client) close() {
	m.conn.Close()
	m.cancel()
}

// start starts a transient unit and waits until it has started.
func (m *client) start(name string, properties ...property) error {
	return m.job(".StartTransientUnit", name, "fail", properties, []auxiliary{})
}

// job calls a method that queues a job, and waits for the job's end, which may come before the answer to the call.
func (m *client) job(method string, args ...any) error {
	var job dbus.ObjectPath
	if err := m.systemd.CallWithContext(m.ctx, manager+method, 0, args...).Store(&job); err != nil {
		return err
	}
	for {
		select {
		case s, ok := <-m.ended:
			if !ok {
				return errors.New("the bus has ended")
			}
			if result, ok := resultOf(s, job); ok && result != "done" {
				return fmt.Errorf("its job ended as %s", result)
			} else if ok {
				return nil
			}
		case <-m.ctx.Done():
			return m.ctx.Err()
		}
	}
}

// failed reports whether an error is systemd's refusal of that name.
func failed(err error, name string) bool {
	var refusal dbus.Error
	return errors.As(err, &refusal) && refusal.Name == name
}

// resultOf returns the result of a job from the signal of its end.
func resultOf(s *dbus.Signal, job dbus.ObjectPath) (string, bool) {
	if len(s.Body) < 4 || s.Body[1] != job {
		return "", false
	}
	result, ok := s.Body[3].(string)
	return result, ok
}
