package fsys

import (
	"bytes"
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
	// maxList is the kernel's bound for names and for values.
	maxList = 64 << 10
)

// xattrs answers the requests for extended attributes.
type xattrs struct {
	host  host
	table *nodes.Table
	acl   bool // whether access control lists are passed on
}

// shared reports whether the guest may use an attribute: user attributes, and access control lists if they are passed
// on. security.capability is excluded: it would make the guest's programs privileged on the host.
func (s xattrs) shared(name string) bool {
	return strings.HasPrefix(name, "user.") || s.acl && (name == accessACL || name == defaultACL)
}

// attributesOf opens the node with that id for its attributes.
func (s xattrs) attributesOf(id uint64) (int, error) {
	r, err := s.table.Hold(id, false)
	if err != nil {
		return -1, err
	}
	defer r.Release()
	return s.host.attributes(r)
}

// GetXAttr implements [fuse.RawFileSystem].
func (s xattrs) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	if !s.shared(name) {
		if name == "security.capability" {
			return 0, fuse.ENODATA
		}
		return 0, fuse.ENOTSUP
	}
	if in.NodeId == nodes.Root {
		return 0, fuse.ENODATA
	}
	fd, err := s.attributesOf(in.NodeId)
	if err == unix.EPERM { //nolint:errorlint // of open
		return 0, fuse.ENODATA
	}
	if err != nil {
		return 0, status(err)
	}
	defer unix.Close(fd)
	n, err := unix.Fgetxattr(fd, name, dest)
	if err == unix.EOPNOTSUPP && !strings.HasPrefix(name, "user.") { //nolint:errorlint // the kernel's own number
		return 0, fuse.ENODATA // else the guest's kernel would refuse access
	}
	return uint32(max(n, 0)), status(err)
}

// ListXAttr implements [fuse.RawFileSystem].
func (s xattrs) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	if in.NodeId == nodes.Root {
		return 0, fuse.OK
	}
	fd, err := s.attributesOf(in.NodeId)
	if err == unix.EPERM { //nolint:errorlint // of open
		return 0, fuse.OK
	}
	if err != nil {
		return 0, status(err)
	}
	defer unix.Close(fd)
	buf := make([]byte, maxList)
	n, err := unix.Flistxattr(fd, buf)
	if err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return 0, fuse.OK
		}
		return 0, status(err)
	}
	var list []byte
	for name := range bytes.SplitAfterSeq(buf[:n], []byte{0}) {
		if s.shared(strings.TrimSuffix(string(name), "\x00")) {
			list = append(list, name...)
		}
	}
	if len(list) > len(dest) {
		return uint32(len(list)), fuse.ERANGE
	}
	return uint32(copy(dest, list)), fuse.OK
}

// SetXAttr implements [fuse.RawFileSystem].
func (s xattrs) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, data []byte) fuse.Status {
	if len(data) < int(in.Size) {
		return fuse.EINVAL
	}
	return s.change(&in.InHeader, name, func(fd int) error {
		return unix.Fsetxattr(fd, name, data[:in.Size], int(in.Flags))
	})
}

// RemoveXAttr implements [fuse.RawFileSystem].
func (s xattrs) RemoveXAttr(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return s.change(in, name, func(fd int) error { return unix.Fremovexattr(fd, name) })
}

func (s xattrs) change(in *fuse.InHeader, name string, do func(fd int) error) fuse.Status {
	r, err := s.table.Hold(in.NodeId, true)
	if err != nil {
		return status(err)
	}
	defer r.Release()
	if !s.shared(name) {
		return fuse.ENOTSUP
	}
	fd, err := s.host.attributes(r)
	if err != nil {
		return status(err)
	}
	defer unix.Close(fd)
	return status(do(fd))
}
