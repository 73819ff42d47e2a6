package containerv1

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Source is what a Mount mounts: Dir, Files, Text, Termination, Image, Share or Block.
type Source interface{ isSource() }

// Dir is a directory of the guest that all containers of the pod share and that lives
// as long as the pod: an emptyDir.
type Dir struct {
	Name   string
	Medium Medium
	Size   int64  // bytes; 0 is no limit
	Mode   uint32 // permissions; 0 is 0777
}

// Medium is what a Dir lies on.
type Medium string

// The media.
const (
	Disk      Medium = "" // the pod's scratch disk
	Memory    Medium = "Memory"
	HugePages Medium = "HugePages"
)

// Files is a directory of files that the host has copied into the guest.
type Files struct{ Name string }

// Text is one file that the guest writes. Containers with the same text at the same
// destination share it.
type Text struct{ Content string }

// Termination is the file in which the container leaves its last words.
type Termination struct{}

func (Dir) isSource()         {}
func (Files) isSource()       {}
func (Text) isSource()        {}
func (Termination) isSource() {}
func (Image) isSource()       {}
func (Share) isSource()       {}
func (Block) isSource()       {}

// Mount is one of a container's mounts. The kernel's own file systems (proc, tmpfs, …)
// are none: they stand in the OCI specification as they are.
type Mount struct {
	Destination string
	Source      Source
	// SubPath is what of the source is mounted; empty is all. A directory that is
	// missing is made in a Dir and in Files, and is an error elsewhere.
	SubPath string
	// Group owns a Dir, Files, a Block, or a Share that is a volume, beside root (fsGroup); 0 is none.
	Group int
	// Copy has a Block with a file system, while that is empty, get what the root has at Destination.
	Copy bool
	// Options are mount(8)'s: "ro", "rbind", "rprivate", "noexec" … None is one that
	// Encode writes itself.
	Options []string
}

// The types of mounts in an OCI specification, by the Source that they stand for.
const (
	typeDir         = "bulkhead.emptydir"
	typeFiles       = "bulkhead.files"
	typeText        = "bulkhead.file"
	typeTermination = "bulkhead.termination"
	typeImage       = "bulkhead.image"
	typeShare       = "bulkhead.share"
	typeBlock       = "bulkhead.block"
)

// Encode is the mount as an OCI specification has it. The inverse is ParseMount.
func (m Mount) Encode() (kind, source string, options []string) {
	options = slices.Clone(m.Options)
	add := func(key, value string) { options = append(options, key+"="+value) }
	switch s := m.Source.(type) {
	case Dir:
		kind, source = typeDir, s.Name
		if s.Medium != Disk {
			add("medium", string(s.Medium))
		}
		if s.Size != 0 {
			add("size", strconv.FormatInt(s.Size, 10))
		}
		if s.Mode != 0 {
			add("mode", strconv.FormatUint(uint64(s.Mode), 8))
		}
	case Files:
		kind, source = typeFiles, s.Name
	case Text:
		kind, source = typeText, s.Content
	case Termination:
		kind, source = typeTermination, "termination"
	case Image:
		kind, source = typeImage, s.ID
	case Share:
		kind, source = typeShare, s.Name
		if s.Cache != "" {
			add("cache", s.Cache)
		}
	case Block:
		kind, source = typeBlock, s.Name
		s.encode(add)
	}
	if m.Group != 0 {
		add("group", strconv.Itoa(m.Group))
	}
	if m.SubPath != "" {
		add("subpath", m.SubPath)
	}
	if m.Copy {
		add("copy", "root")
	}
	return kind, source, options
}

// ParseMount is the inverse of Mount.Encode. ours is false for a mount whose type is
// none of this package's, which is the kernel's own. An error matches ErrInvalid.
func ParseMount(destination, kind, source string, options []string) (m Mount, ours bool, err error) {
	m = Mount{Destination: destination}
	var dir Dir
	var block Block
	switch kind {
	case typeDir:
		dir.Name = source
	case typeFiles:
		m.Source = Files{source}
	case typeText:
		m.Source = Text{source}
	case typeTermination:
		m.Source = Termination{}
	case typeImage:
		m.Source = Image{source}
	case typeShare:
		m.Source = Share{Name: source}
	case typeBlock:
		block.Name = source
	default:
		return Mount{}, false, nil
	}
	for _, option := range options {
		key, value, valued := strings.Cut(option, "=")
		if !valued || !m.parse(&dir, &block, kind, key, value, &err) {
			m.Options = append(m.Options, option)
		}
		if err != nil {
			return Mount{}, true, fmt.Errorf("%w: mount at %.128q: %s %.32q: %w", ErrInvalid, destination, key, value, err)
		}
	}
	switch kind {
	case typeDir:
		m.Source = dir
	case typeBlock:
		m.Source = block
	}
	return m, true, nil
}

// parse takes one option with a value, and returns false for one that is mount(8)'s.
func (m *Mount) parse(dir *Dir, block *Block, kind, key, value string, err *error) bool {
	isDir := kind == typeDir
	whole := kind == typeText || kind == typeTermination
	switch {
	case isDir && key == "medium":
		dir.Medium = Medium(value)
		if dir.Medium != Memory && dir.Medium != HugePages {
			*err = strconv.ErrSyntax
		}
	case isDir && key == "size":
		if dir.Size, *err = strconv.ParseInt(value, 10, 64); dir.Size < 0 {
			*err = strconv.ErrRange
		}
	case isDir && key == "mode":
		var mode uint64
		mode, *err = strconv.ParseUint(value, 8, 12)
		dir.Mode = uint32(mode)
	case kind == typeBlock && block.parse(key, value, err):
	case (isDir || kind == typeFiles || kind == typeBlock || kind == typeShare) && key == "group":
		var group uint64
		group, *err = strconv.ParseUint(value, 10, 31)
		m.Group = int(group)
	case kind == typeShare && key == "cache":
		m.Source = Share{Name: m.Source.(Share).Name, Cache: value}
	case kind == typeBlock && key == "copy" && value == "root":
		m.Copy = true
	case !whole && key == "subpath":
		m.SubPath = value
	default:
		return false
	}
	return true
}
