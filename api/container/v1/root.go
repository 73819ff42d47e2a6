package containerv1

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// ErrInvalid is matched by the errors of this package's parsers.
var ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid description of a container")

// Root is a container's root file system: Image, Share or Block.
type Root interface{ isRoot() }

// Image is the file system of an image, by the image's id. As a root it lies under a writable layer; as a Source it
// is read-only.
type Image struct{ ID string }

// Share is a directory or file of the host, by its path, or a named volume with a directory, by its VolumeName. As
// a Root, the container runs on the directory itself, and writes go there.
type Share struct {
	Name string
	// Cache says what the guest may cache, in the words of package share; empty selects that package's default.
	Cache string
	// Present is set for a volume that is mounted already: a missing one is an error and is not created. The same
	// holds for missing files in it if it is read-only.
	Present bool
	// SetID applies to a Root only: set-user-id bits that the container sets stay, on the host too. The client must
	// make sure that no other user of the host can reach the files.
	SetID bool
}

// Block is a block device of the host, or a regular file used as one, by its path, or a named volume with a disk.
// As a Source without a file system it is a device at the mount's destination. As a Root it must have FSExt4.
type Block struct {
	Name string
	// FS is its file system: FSExt4, or NoFS.
	FS       FS
	ReadOnly bool
	// Access is the container's access to a device: some of "rwm", as in a device cgroup. Mode is the mode of the
	// device's node. Both must be empty with a file system.
	Access string
	Mode   uint32
	// Device is the required number of the block device at the path, as in stat(2); a regular file is then refused.
	// 0 accepts any device or a file.
	Device uint64
}

// FS is a file system on a Block.
type FS string

// The file systems that a guest can mount from a Block.
const (
	NoFS   FS = ""
	FSExt4 FS = "ext4"
)

func (Image) isRoot() {}
func (Share) isRoot() {}
func (Block) isRoot() {}

// RootRecord is a Root in JSON, for embedding. Exactly one field is set.
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

// Root returns the root in the record, or an error that matches ErrInvalid.
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
