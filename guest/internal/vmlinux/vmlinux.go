// Package vmlinux extracts the uncompressed kernel from a distribution's image. A VM that boots from it skips the
// decompressor, and its clones do not carry the compressed copy in memory.
package vmlinux

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/bulkhead-project/bulkhead/guest/internal/unpack"
)

var errUnusable = errors.New("not a usable kernel image")

// maxSize bounds the unpacked kernel.
const maxSize = 512 << 20

// Offsets of fields in the header of the x86 boot protocol.
const (
	offSetupSects    = 0x1f1
	offMagic         = 0x202 // "HdrS"
	offVersion       = 0x206
	offPayloadOffset = 0x248 // from the end of the setup sectors
	offPayloadLength = 0x24c
	headerEnd        = 0x250
	sector           = 512
	payloadVersion   = 0x0208 // the first protocol version with the payload's position
)

// Extract returns the kernel in image, which is a bzImage or an ELF kernel. The result has the PVH entry point.
func Extract(image []byte) ([]byte, error) {
	kernel, err := unpackImage(image)
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(kernel))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	defer f.Close()
	if err := check(f); err != nil {
		return nil, err
	}
	return kernel, nil
}

func unpackImage(image []byte) ([]byte, error) {
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		return image, nil
	}
	packed, err := payload(image)
	if err != nil {
		return nil, err
	}
	// The last four bytes are the unpacked size: a part of gzip's format, and appended to the other formats.
	end := len(packed) - 4
	size := binary.LittleEndian.Uint32(packed[end:])
	if !bytes.HasPrefix(packed, []byte("\x1f\x8b")) {
		packed = packed[:end]
	}
	kernel, err := unpack.ELF(packed, maxSize)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	if len(kernel) != int(size) {
		return nil, fmt.Errorf("%w: it unpacks to %d bytes, but its header says %d", errUnusable, len(kernel), size)
	}
	return kernel, nil
}

func payload(image []byte) ([]byte, error) {
	if len(image) < headerEnd || string(image[offMagic:offMagic+4]) != "HdrS" {
		return nil, fmt.Errorf("%w: it must be a bzImage or an ELF file", errUnusable)
	}
	if v := binary.LittleEndian.Uint16(image[offVersion:]); v < payloadVersion {
		return nil, fmt.Errorf("%w: boot protocol %#x does not locate the kernel (2.08 or later needed)", errUnusable, v)
	}
	setup := int64(image[offSetupSects])
	if setup == 0 {
		setup = 4 // as the protocol defines
	}
	start := (setup+1)*sector + int64(binary.LittleEndian.Uint32(image[offPayloadOffset:]))
	end := start + int64(binary.LittleEndian.Uint32(image[offPayloadLength:]))
	if end > int64(len(image)) || end-start < 8 {
		return nil, fmt.Errorf("%w: the file is cut short (%d bytes, the kernel ends at %d)", errUnusable, len(image), end)
	}
	return image[start:end], nil
}

// check looks for the PVH entry note: owner Xen, type XEN_ELFNOTE_PHYS32_ENTRY.
func check(f *elf.File) error {
	if f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("%w: it is for %v", errUnusable, f.Machine)
	}
	for _, prog := range f.Progs {
		if prog.Type != elf.PT_NOTE || prog.Filesz > 1<<20 {
			continue
		}
		notes := make([]byte, prog.Filesz)
		if _, err := prog.ReadAt(notes, 0); err != nil {
			return fmt.Errorf("%w: read its notes: %w", errUnusable, err)
		}
		if hasNote(notes, "Xen\x00", 18) {
			return nil
		}
	}
	return fmt.Errorf("%w: it has no PVH entry point (CONFIG_PVH)", errUnusable)
}

func hasNote(notes []byte, owner string, kind uint32) bool {
	align := func(n uint64) uint64 { return (n + 3) &^ 3 }
	for len(notes) >= 12 {
		nameLen := uint64(binary.LittleEndian.Uint32(notes))
		descLen := uint64(binary.LittleEndian.Uint32(notes[4:]))
		size := 12 + align(nameLen) + align(descLen)
		if size > uint64(len(notes)) {
			return false
		}
		if binary.LittleEndian.Uint32(notes[8:]) == kind && string(notes[12:12+nameLen]) == owner {
			return true
		}
		notes = notes[size:]
	}
	return false
}

// Release returns the release of a kernel from Extract, as uname -r prints it.
func Release(kernel []byte) (string, error) {
	const banner = "Linux version "
	for rest := kernel; ; {
		i := bytes.Index(rest, []byte(banner))
		if i < 0 {
			return "", fmt.Errorf("%w: it contains no release", errUnusable)
		}
		rest = rest[i+len(banner):]
		word, _, ok := bytes.Cut(rest[:min(len(rest), 128)], []byte(" "))
		if ok && len(word) > 0 && word[0] >= '0' && word[0] <= '9' {
			return string(word), nil
		}
	}
}
