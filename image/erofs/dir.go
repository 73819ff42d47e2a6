package erofs

import (
	"encoding/binary"
	"slices"
)

// planDir sorts a directory's names and computes its size. A block has entries followed by their names; none is split.
func planDir(n *Inode) {
	n.names = make([]string, 0, len(n.Entries)+2)
	n.names = append(n.names, ".", "..")
	for name := range n.Entries {
		n.names = append(n.names, name)
	}
	slices.Sort(n.names) // lookup is a binary search over bytes
	n.blocks, n.size = 0, 0
	for rest := n.names; len(rest) > 0; n.blocks++ {
		count, used := direntBlock(rest)
		rest = rest[count:]
		n.size = int64(n.blocks)*BlockSize + int64(used)
	}
}

// direntBlock returns how many of names fit in one block, and their bytes.
func direntBlock(names []string) (count, used int) {
	for _, name := range names {
		if used+direntSize+len(name) > BlockSize {
			break
		}
		used += direntSize + len(name)
		count++
	}
	return count, used
}

// dirents returns a directory's content: n.size bytes.
func (w *Writer) dirents(n, parent *Inode) []byte {
	out := make([]byte, 0, n.size)
	for rest := n.names; len(rest) > 0; {
		count, _ := direntBlock(rest)
		out = append(out, make([]byte, align(int64(len(out)), BlockSize)-int64(len(out)))...)
		nameAt := count * direntSize
		for _, name := range rest[:count] {
			child := n
			switch name {
			case ".":
			case "..":
				child = parent
			default:
				child = n.Entries[name].Inode
			}
			out = binary.LittleEndian.AppendUint64(out, uint64(child.pos/slotSize))
			out = binary.LittleEndian.AppendUint16(out, uint16(nameAt))
			out = append(out, fileType(child.Mode), 0)
			nameAt += len(name)
		}
		for _, name := range rest[:count] {
			out = append(out, name...)
		}
		rest = rest[count:]
	}
	return out
}
