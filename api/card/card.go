// Package card names the network cards that a VM is given while it runs: who plugs them in
// and the guest must agree on them.
package card

import "fmt"

// Most is how many cards a VM can be given, beside the one that it begins with.
const Most = 7

// MAC is the hardware address by which the guest knows the card of a number, from 0 on, until
// the card has its pod's.
func MAC(number int) string { return fmt.Sprintf("02:62:68:6b:00:%02x", number) }
