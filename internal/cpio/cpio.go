// Package cpio writes the "newc" archives that Linux unpacks as its first root
// file system. The same entries give the same bytes: owners and times are zero.
package cpio

import (
	"fmt"
	"io"
	"strings"
)

// The types of an entry, to be or-ed with its permissions.
const (
	Dir    = 0o040000
	File   = 0o100000
	Device = 0o020000 // character
	Link   = 0o120000 // symbolic, with its target as data
)

// Entry is one file of the archive.
type Entry struct {
	Name         string // relative, no leading slash
	Mode         uint32 // type and permissions
	Major, Minor uint32 // of a device
	Data         []byte // of a file or link
}

const trailer = "TRAILER!!!"

// Write writes entries in the given order. A directory must come before its entries.
func Write(w io.Writer, entries []Entry) error {
	for i, e := range entries {
		if err := write(w, e, uint32(i+1)); err != nil {
			return fmt.Errorf("write archive entry %s: %w", e.Name, err)
		}
	}
	return write(w, Entry{Name: trailer}, 0)
}

func write(w io.Writer, e Entry, inode uint32) error {
	if uint64(len(e.Data)) > 1<<32-1 {
		return fmt.Errorf("%d bytes are too many for the format", len(e.Data))
	}
	links := uint32(1)
	if e.Mode&Dir == Dir {
		links = 2
	}
	var head strings.Builder
	head.WriteString("070701")
	for _, field := range []uint32{
		inode, e.Mode, 0, 0, links, 0, uint32(len(e.Data)), // uid, gid and mtime are 0
		0, 0, e.Major, e.Minor, uint32(len(e.Name) + 1), 0,
	} {
		fmt.Fprintf(&head, "%08x", field)
	}
	head.WriteString(e.Name)
	head.WriteByte(0)
	pad(&head)
	if _, err := io.WriteString(w, head.String()); err != nil {
		return err
	}
	if _, err := w.Write(e.Data); err != nil {
		return err
	}
	_, err := w.Write(make([]byte, padding(len(e.Data))))
	return err
}

func pad(b *strings.Builder) {
	b.Write(make([]byte, padding(b.Len())))
}

func padding(n int) int { return -n & 3 }
