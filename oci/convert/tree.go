package convert

import (
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Tree is a directory or file of the host in the container. The door clones it with open_tree(2), or mounts it if it
// is an overlay.
type Tree struct {
	// Source is an absolute path in the client's mount namespace. It is empty for an overlay.
	Source string
	// Destination is the cleaned absolute path in the container.
	Destination string
	// Dir reports whether the source is a directory.
	Dir bool
	// Recursive also clones the mounts below the source (rbind).
	Recursive bool
	// Follow receives later mounts on the source from the host (rslave). Otherwise the clone is private.
	Follow bool
	// Attributes apply to the mount at the source, and Below to all mounts in the tree.
	Attributes, Below Attributes
	// IDMap maps the owners of the files; nil means none.
	IDMap *IDMap
	// Overlay are the options of an overlay file system that the door mounts.
	Overlay []string
}

// MountPoint is a place in a read-only root where the guest mounts a directory or a file. The guest cannot create it.
type MountPoint struct {
	Path string
	Dir  bool
}

// Attributes are the MOUNT_ATTR flags of mount_setattr(2).
type Attributes struct{ Set, Clear uint64 }

// IDMap are the mappings of an idmapped mount, as in a user namespace.
type IDMap struct {
	UIDs, GIDs []specs.LinuxIDMapping
	// Recursive also maps the mounts below.
	Recursive bool
}

// TreeName returns the name of the containerv1.Share for Plan.Trees[n].
func TreeName(n int) string { return "/" + strconv.Itoa(n) }
