// Package slot defines the size of the disk slots of all VMs. Creators of disks and the hypervisor must agree on
// it.
package slot

// Size is the length of a slot in bytes: the length of every read-only disk, and the maximum of a writable one. A
// guest knows it from its template.
const Size = 64 << 30
