package containerv1

import (
	"fmt"
	"strconv"
	"strings"
)

// encode adds the options of a mount of the block.
func (b Block) encode(add func(key, value string)) {
	if b.FS != NoFS {
		add("fs", string(b.FS))
	}
	if b.ReadOnly {
		add("disk", "ro")
	}
	if b.Access != "" {
		add("access", b.Access)
	}
	if b.Mode != 0 {
		add("mode", strconv.FormatUint(uint64(b.Mode), 8))
	}
	if b.Device != 0 {
		add("device", strconv.FormatUint(b.Device, 10))
	}
}

// parse parses one option of a mount of the block. It returns false for other options.
func (b *Block) parse(key, value string, err *error) bool {
	switch key {
	case "fs":
		b.FS = FS(value)
		if b.FS != FSExt4 {
			*err = strconv.ErrSyntax
		}
	case "disk":
		b.ReadOnly = true
		if value != "ro" {
			*err = strconv.ErrSyntax
		}
	case "access":
		b.Access = value
		if value == "" || strings.Trim(value, "rwm") != "" {
			*err = strconv.ErrSyntax
		}
	case "mode":
		var mode uint64
		mode, *err = strconv.ParseUint(value, 8, 12)
		b.Mode = uint32(mode)
	case "device":
		b.Device, *err = strconv.ParseUint(value, 10, 64)
	default:
		return false
	}
	return true
}

// check refuses invalid mounts of the block.
func (b Block) check(m Mount) error {
	switch {
	case b.Name == "":
		return fmt.Errorf("%w: mount at %.128q is of no block device", ErrInvalid, m.Destination)
	case b.FS != NoFS && b.FS != FSExt4:
		return unsupported("file system %.32q of block device %.128q", string(b.FS), b.Name)
	case b.FS == NoFS && m.SubPath != "":
		return fmt.Errorf("%w: a part (%.128q) of block device %.128q, which has no file system", ErrInvalid, m.SubPath, b.Name)
	case b.FS == NoFS && b.Access == "", b.FS != NoFS && (b.Access != "" || b.Mode != 0):
		return fmt.Errorf("%w: access %q to block device %.128q", ErrInvalid, b.Access, b.Name)
	}
	return nil
}
