package kmod

import (
	"bytes"
	"encoding/binary"
)

// A signed module ends with the signature, twelve bytes that say how long it
// is, and this mark.
const (
	signatureMark = "~Module signature appended~\n"
	signatureInfo = 12
)

// Unsigned returns module without the signature appended to it. The kernel
// checks a signature that is there, which takes an emulated machine five
// milliseconds a module; the initrd's own hash vouches for them all already.
func Unsigned(module []byte) []byte {
	rest, ok := bytes.CutSuffix(module, []byte(signatureMark))
	if !ok || len(rest) < signatureInfo {
		return module
	}
	size := uint64(binary.BigEndian.Uint32(rest[len(rest)-4:])) + signatureInfo
	if size > uint64(len(rest)) {
		return module
	}
	return rest[:uint64(len(rest))-size]
}
