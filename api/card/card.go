// Package card defines the network cards that a running VM can be given. The hypervisor and the guest must agree on
// them.
package card

import "fmt"

// Most is the maximum number of cards in addition to the first one.
const Most = 7

// MAC returns the initial hardware address of card number, from 0 on. The guest identifies the card by it.
func MAC(number int) string { return fmt.Sprintf("02:62:68:6b:00:%02x", number) }
