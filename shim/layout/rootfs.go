package layout

import (
	"fmt"
	"strings"

	"github.com/containerd/containerd/api/types"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// Part is one source of a container's file systems, with the name under which its descriptor was sent. The name may be
// empty for a disk that the VM already has.
type Part struct {
	Of   containerv1.Root
	File string
}

// The types of a task's root mounts.
const (
	diskType  = "bulkhead-disk" // of an image
	shareType = "bulkhead-share"
	blockType = "bulkhead-block"

	fileOption     = "file=" // with a Part's File
	fsOption       = "fs="   // with a block device's FS
	readOnlyOption = "ro"    // of a block device
)

// EncodeRootfs returns a task's root mounts. The first part is the container's root. The others are the images and
// block devices that the mounts of its specification use; those mounts say how. ParseRootfs is the inverse.
func EncodeRootfs(parts []Part) []*types.Mount {
	var mounts []*types.Mount
	for _, part := range parts {
		m := &types.Mount{}
		switch of := part.Of.(type) {
		case containerv1.Image:
			m.Type, m.Source = diskType, of.ID
		case containerv1.Share:
			m.Type, m.Source = shareType, of.Name
		case containerv1.Block:
			m.Type, m.Source = blockType, of.Name
			if of.FS != containerv1.NoFS {
				m.Options = append(m.Options, fsOption+string(of.FS))
			}
			if of.ReadOnly {
				m.Options = append(m.Options, readOnlyOption)
			}
		}
		if part.File != "" {
			m.Options = append(m.Options, fileOption+part.File)
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// ParseRootfs is the inverse of EncodeRootfs. It returns at least one part, or an error
// that matches containerv1.ErrInvalid.
func ParseRootfs(mounts []*types.Mount) (parts []Part, err error) {
	for _, m := range mounts {
		var part Part
		switch m.GetType() {
		case diskType:
			part.Of = containerv1.Image{ID: m.GetSource()}
		case shareType:
			part.Of = containerv1.Share{Name: m.GetSource()}
		case blockType:
			part.Of = containerv1.Block{Name: m.GetSource()}
		default:
			return nil, fmt.Errorf("%w: root mount of type %.64q", containerv1.ErrInvalid, m.GetType())
		}
		for _, option := range m.GetOptions() {
			if !part.parse(option) {
				return nil, fmt.Errorf("%w: option %.64q of a root mount", containerv1.ErrInvalid, option)
			}
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w: a container needs a root", containerv1.ErrInvalid)
	}
	return parts, nil
}

// parse parses one option of a root mount and reports whether it is valid.
func (p *Part) parse(option string) bool {
	if name, ok := strings.CutPrefix(option, fileOption); ok {
		first := p.File == ""
		p.File = name
		return first && name != ""
	}
	block, ok := p.Of.(containerv1.Block)
	if !ok {
		return false
	}
	if fs, ok := strings.CutPrefix(option, fsOption); ok {
		block.FS = containerv1.FS(fs)
		p.Of = block
		return block.FS == containerv1.FSExt4
	}
	block.ReadOnly = option == readOnlyOption
	p.Of = block
	return block.ReadOnly
}
