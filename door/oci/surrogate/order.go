package surrogate

import (
	"errors"
	"fmt"
	"strings"
)

// The descriptors of a surrogate after its standard streams. The surrogate of an
// exec has the container's mount namespace in place of the staging namespace.
const (
	ControlFD = 3 // a SOCK_SEQPACKET socket for orders
	StagingFD = 4 // the mount namespace with the container's files of the host, after Stage
	ServeFD   = 5 // with NetworkFlag, an end of a pair of package network/adopt/inside
	ClientFD  = 6 // its other end
)

// NetworkFlag is the argument of the surrogate in the VM's network namespace.
const NetworkFlag = "--network"

// The orders of a door. Each is one message. The surrogate answers it with Done or an error's text. The door's end
// without Release ends the surrogate.
const (
	// Stage makes a copy of the mount namespace, at StagingFD. The door fills it. It belongs to the surrogate's user
	// namespace, so that the surrogate may enter it.
	Stage = "stage"
	// Attach connects the streams to a created process.
	Attach = "attach"
	// Hold makes the surrogate stand for a pod's VM, instead of a process there. A pidfd of the VM's process comes with it.
	Hold = "hold"
	// View gives the surrogate a mount namespace that looks like the container's.
	View = "view"
	// Enter moves the surrogate of an exec into the mount namespace of the container's.
	Enter = "enter"
	// Release ends the orders: the surrogate now lives as long as its process.
	Release = "release"
)

// Done is the answer to an order that has succeeded.
const Done = "done"

// maxOrder bounds an order, in bytes.
const maxOrder = 64 << 10

// ErrOrder is returned for a malformed order.
var ErrOrder = errors.New("malformed order")

// Target is the process in the VM.
type Target struct {
	Dir             string // of the pod's sockets
	Container, Exec string
	Terminal, Stdin bool
}

// Order encodes an order. Fields must not contain a zero byte.
func Order(kind string, fields ...string) ([]byte, error) {
	all := append([]string{kind}, fields...)
	for _, f := range all {
		if strings.ContainsRune(f, 0) {
			return nil, fmt.Errorf("%w: a zero byte in %.80q", ErrOrder, f)
		}
	}
	message := strings.Join(all, "\x00")
	if len(message) > maxOrder {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrOrder, len(message), maxOrder)
	}
	return []byte(message), nil
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// Fields are the fields of an Attach order.
func (t Target) Fields() []string {
	return []string{t.Dir, t.Container, t.Exec, flag(t.Terminal), flag(t.Stdin)}
}

func parseTarget(f []string) (Target, error) {
	if len(f) != 5 {
		return Target{}, fmt.Errorf("%w: %d fields", ErrOrder, len(f))
	}
	return Target{Dir: f[0], Container: f[1], Exec: f[2], Terminal: f[3] != "", Stdin: f[4] != ""}, nil
}
