package shutdown

import (
	"sync/atomic"

	"github.com/godbus/dbus/v5"
)

// hears takes the signals of a connection as they come, and keeps the last word of each kind. Whoever is on the bus can
// send a signal in logind's name, also to one client alone, so what counts is the sender, which the bus writes: nothing
// of another's is kept.
type hears struct {
	from   atomic.Pointer[string] // logind's own name on the bus, nil while it is not known
	words  chan bool              // that the machine goes down, or not after all
	owners chan string            // whose logind's name is from then on
}

func newHears() *hears { return &hears{words: make(chan bool, 1), owners: make(chan string, 1)} }

// DeliverSignal implements dbus.SignalHandler. It is called by the connection's reader alone.
func (h *hears) DeliverSignal(iface, name string, signal *dbus.Signal) {
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
			replace(h.words, down)
		}
	}
}

// replace has a channel of one place, to which nobody else sends, hold a value in the place of the one that was not taken.
func replace[T any](c chan T, value T) {
	select {
	case <-c:
	default:
	}
	c <- value
}
