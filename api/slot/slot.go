// Package slot has the size of the disk slots that every machine has: who
// makes disks and who runs machines must agree on it.
package slot

// Size is the length of a slot in bytes: of every read-only disk, and the
// largest of a writable one. A guest knows it from its template.
const Size = 64 << 30
