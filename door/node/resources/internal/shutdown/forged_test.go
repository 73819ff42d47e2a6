package shutdown

import (
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testlogind"
)

// signal sends logind's signal to one client, whatever signals that client subscribed to, and waits until the bus has it.
func signal(t *testing.T, conn *dbus.Conn, to string, from dbus.ObjectPath, down bool) {
	t.Helper()
	conn.Send(&dbus.Message{Type: dbus.TypeSignal, Flags: dbus.FlagNoReplyExpected, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(to), dbus.FieldPath: dbus.MakeVariant(from),
		dbus.FieldInterface: dbus.MakeVariant(manager), dbus.FieldMember: dbus.MakeVariant(preparing),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(down)),
	}, Body: []any{down}}, nil)
	if err := conn.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
}

// TestForged: logind's signal from another client is ignored, whether broadcast or sent to the node alone. So is
// logind's signal about another object.
func TestForged(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 30*time.Second)
	address := testlogind.Bus(t)
	l := testlogind.Start(t, address, time.Minute, false)
	w := newWorld(ctx, t, address, 2*time.Second, time.Second)
	lock := l.Lock(ctx, t)
	node := <-l.Asked
	other, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	forge := func(down bool) {
		t.Helper()
		if err := other.Emit(path, manager+"."+preparing, down); err != nil {
			t.Fatal(err)
		}
		signal(t, other, node, path, down)
		signal(t, l.Conn, node, path+"/other", down)
	}
	forge(true)
	l.Prepare(t, true)
	w.changed(ctx, t, true)
	lock.Released(ctx, t)
	forge(false)
	l.Prepare(t, false)
	w.changed(ctx, t, false)
	l.Lock(ctx, t)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ended) != 3 || len(w.changes) != 0 || len(l.Held) != 0 {
		t.Errorf("ended %q, %d more changes, %d more locks", w.ended, len(w.changes), len(l.Held))
	}
}

// TestLogindAgain: the signal of a restarted logind counts, even if the earlier logind sent the same one.
func TestLogindAgain(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 60*time.Second)
	address := testlogind.Bus(t)
	l := testlogind.Start(t, address, time.Minute, false)
	w := newWorld(ctx, t, address, 2*time.Second, time.Second)
	lock := l.Lock(ctx, t)
	l.Prepare(t, true)
	w.changed(ctx, t, true)
	lock.Released(ctx, t)
	_ = l.Conn.Close() // the shutdown is cancelled meanwhile
	l = testlogind.Start(t, address, time.Minute, false)
	w.changed(ctx, t, false)
	l.Lock(ctx, t)
	_ = l.Conn.Close()
	l = testlogind.Start(t, address, time.Minute, true) // refuses locks from now on
	w.changed(ctx, t, true)
	l.Prepare(t, false)
	w.changed(ctx, t, false)
	l.Lock(ctx, t)
}
