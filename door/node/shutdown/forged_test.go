package shutdown

import (
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/testlogind"
)

// say sends a word of logind's to one client alone, whatever that asked to hear, and waits until the bus has it.
func say(t *testing.T, conn *dbus.Conn, to string, from dbus.ObjectPath, down bool) {
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

// TestForged: what another client says in logind's place does nothing, to all or to the node alone, and neither does what
// logind says of another object.
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
		say(t, other, node, path, down)
		say(t, l.Conn, node, path+"/other", down)
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

// TestLogindAgain: what a logind says that comes after another counts, also where it has said it already.
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
	_ = l.Conn.Close() // it is called off meanwhile
	l = testlogind.Start(t, address, time.Minute, false)
	w.changed(ctx, t, false)
	l.Lock(ctx, t)
	_ = l.Conn.Close()
	l = testlogind.Start(t, address, time.Minute, true) // which gives no lock any more
	w.changed(ctx, t, true)
	l.Prepare(t, false)
	w.changed(ctx, t, false)
	l.Lock(ctx, t)
}
