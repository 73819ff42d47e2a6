package shutdown

import (
	"sync/atomic"

	"github.com/godbus/dbus/v5"
)

// signals receives the signals of a connection and keeps the last one of each kind. Any client of the bus can send a
// signal with logind's interface, also to one client alone. So signals checks the sender, which the bus sets, and drops
// the signals of other senders.
type signals struct {
	from      atomic.Pointer[string] // logind's unique name on the bus; nil while unknown
	shutdowns chan bool              // true for a shutdown, false for a cancelled one
	owners    chan string            // logind's new unique names
}

func newSignals() *signals {
	return &signals{shutdowns: make(chan bool, 1), owners: make(chan string, 1)}
}

// DeliverSignal implements dbus.SignalHandler. Only the connection's reader calls it.
func (h *signals) DeliverSignal(iface, name string, signal *dbus.Signal) {
	from := h.from.Load()
	switch {
	case signal.Sender == busName && iface == busName && name == ownerChanged:
		if len(signal.Body) != 3 || signal.Body[0] != service {
			return
		}
		if owner, is := signal.Body[2].(string); is {
			replace(h.owners, owner)
		}
	case from != nil && signal.Sender == *from && iface == manager && name == preparing && signal.Path == path:
		if len(signal.Body) != 1 {
			return
		}
		if down, is := signal.Body[0].(bool); is {
			replace(h.shutdowns, down)
		}
	}
}

// replace puts a value into a channel of capacity one, in place of an unread one. It must be the channel's only sender.
func replace[T any](c chan T, value T) {
	select {
	case <-c:
	default:
	}
	c <- value
}
