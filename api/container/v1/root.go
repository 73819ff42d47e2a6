package containerv1

import (
	"errors"
	"fmt"
)

// ErrInvalid is matched by the errors of this package's parsers.
var ErrInvalid = errors.New("invalid description of a container")

// Root is a container's root file system: Image, Share or Block.
type Root interface{ isRoot() }

// Image is the file system of an image, by the image's id. As a root it is laid under
// a writable layer; as a Source it is read-only.
type Image struct{ ID string }

// Share is a directory of the host, or a file, by its path, or a named volume of the engine's
// that is a directory, by what VolumeName makes of its name. As a Root the container runs on the
// directory itself, and what it writes is there.
type Share struct {
	Name string
	// Cache is what the guest may remember of it: a word of package share, of which none is
	// that package's default.
	Cache string
	// Present is of a volume that somebody has mounted: one that is missing is an error, where another would be
	// made, and so is what is missing of it for who may not write there.
	Present bool
	// SetID is of a Root only: files that the container makes there keep their bits of
	// set-user-id, on the host too. Whoever asks for it sees to it that no other user of the
	// host can reach them.
	SetID bool
}

// Block is a block device of the host, or a regular file that stands for one, by its path, or a
// named volume of the engine's that is a disk. As a Source one
// without a file system is a device at the mount's destination; as a Root it has FSExt4.
type Block struct {
	Name string
	// FS is the file system that is on it: FSExt4, or NoFS.
	FS       FS
	ReadOnly bool
	// Access is what the container may do with a device: some of "rwm", as a device cgroup has
	// them. Mode is that of the device's node. Neither is there with a file system.
	Access string
	Mode   uint32
	// Device is the number that the block device at the path must have, as stat(2) has it; no regular
	// file stands for that one. 0 is any, and also a file.
	Device uint64
}

// FS is a file system on a Block.
type FS string

// The file systems that a guest mounts from a Block.
const (
	NoFS   FS = ""
	FSExt4 FS = "ext4"
)

func (Image) isRoot() {}
func (Share) isRoot() {}
func (Block) isRoot() {}

// RootRecord is a Root in JSON, fit to be embedded. Exactly one field is set.
type RootRecord struct {
	Image string `json:"image,omitempty"`
	Share string `json:"share,omitempty"`
	Block string `json:"block,omitempty"`
}

// RecordOf is the inverse of RootRecord.Root. The record of nil is empty.
func RecordOf(r Root) RootRecord {
	switch r := r.(type) {
	case Image:
		return RootRecord{Image: r.ID}
	case Share:
		return RootRecord{Share: r.Name}
	case Block:
		return RootRecord{Block: r.Name}
	}
	return RootRecord{}
}

// Root returns the one root that the record holds, or an error that matches
// ErrInvalid.
func (r RootRecord) Root() (Root, error) {
	var roots []Root
	if r.Image != "" {
		roots = append(roots, Image{r.Image})
	}
	if r.Share != "" {
		roots = append(roots, Share{Name: r.Share})
	}
	if r.Block != "" {
		roots = append(roots, Block{Name: r.Block, FS: FSExt4})
	}
	if len(roots) != 1 {
		return nil, fmt.Errorf("%w: %d roots, not one", ErrInvalid, len(roots))
	}
	return roots[0], nil
}
