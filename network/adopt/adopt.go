// Package adopt lets a VM take the place of the interfaces in a network namespace. Packets that enter an interface
// leave at a tap of the VM, and vice versa. The guest gets the interface's hardware address, addresses, routes, static
// neighbours and MTU. The namespace's own network stack then receives no packet from these interfaces.
//
// A client that made the namespace calls MakeTap before the VM starts. It calls Join as soon as the interfaces exist,
// and again after each change that Watch reports. It calls Leave when the VM has ended.
package adopt

import "errors"

var errInterface = errors.New("an interface that a VM cannot have")
