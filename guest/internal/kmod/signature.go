package kmod

import (
	"bytes"
	"encoding/binary"
)

// A signed module ends with the signature, twelve bytes that contain its length, and this mark.
const (
	signatureMark = "~Module signature appended~\n"
	signatureInfo = 12
)

// Unsigned returns module without its appended signature. The kernel would check a signature, which takes five
// milliseconds per module under emulation. The initrd's own hash already covers the modules.
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
