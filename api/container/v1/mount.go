package containerv1

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Source is the source of a Mount: Dir, Files, Text, Termination, Image, Share, Block or System.
type Source interface{ isSource() }

// Dir is a directory in the guest for all containers of the pod, with the pod's lifetime: an emptyDir.
type Dir struct {
	Name   string
	Medium Medium
	Size   int64  // bytes; 0 means no limit
	Mode   uint32 // permissions; 0 means 0777
}

// Medium is the storage of a Dir.
type Medium string

// The media.
const (
	Disk      Medium = "" // the pod's scratch disk
	Memory    Medium = "Memory"
	HugePages Medium = "HugePages"
)

// Files is a directory of files that the host has copied into the guest.
type Files struct{ Name string }

// Text is a file that the guest writes. Containers with the same text at the same destination share it.
type Text struct{ Content string }

// Termination is the container's termination message file.
type Termination struct{}

// System is one of the kernel's own file systems (proc, tmpfs, …), as an OCI specification describes it.
type System struct{ Type, Source string }

func (System) isSource()      {}
func (Dir) isSource()         {}
func (Files) isSource()       {}
func (Text) isSource()        {}
func (Termination) isSource() {}
func (Image) isSource()       {}
func (Share) isSource()       {}
func (Block) isSource()       {}

// Mount is one of a container's mounts.
type Mount struct {
	Destination string
	Source      Source
	// SubPath is the part of the source to mount; empty means all. A missing directory is created in a Dir and in
	// Files, and is an error elsewhere.
	SubPath string
	// Group owns a Dir, Files, a Block, or a Share that is a volume, besides root (fsGroup); 0 means none.
	Group int
	// Copy fills an empty Block with a file system from the root's content at Destination.
	Copy bool
	// Options are options of mount(8), such as "ro", "rbind", "rprivate", "noexec". They must not include options
	// that Encode writes.
	Options []string
}

// The types of mounts in an OCI specification, by Source.
const (
	typeDir         = "bulkhead.emptydir"
	typeFiles       = "bulkhead.files"
	typeText        = "bulkhead.file"
	typeTermination = "bulkhead.termination"
	typeImage       = "bulkhead.image"
	typeShare       = "bulkhead.share"
	typeBlock       = "bulkhead.block"
)

// Encode returns the mount in the form of an OCI specification. ParseMount is its inverse.
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
	case System:
		kind, source = s.Type, s.Source
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

// ParseMount is the inverse of Mount.Encode. A type that is not of this package is a System's. The error matches
// ErrInvalid.
func ParseMount(destination, kind, source string, options []string) (m Mount, err error) {
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
		return Mount{Destination: destination, Source: System{kind, source}, Options: options}, nil
	}
	for _, option := range options {
		key, value, valued := strings.Cut(option, "=")
		if !valued || !m.parse(&dir, &block, kind, key, value, &err) {
			m.Options = append(m.Options, option)
		}
		if err != nil {
			return Mount{}, fmt.Errorf("%w: mount at %.128q: %s %.32q: %w", ErrInvalid, destination, key, value, err)
		}
	}
	switch kind {
	case typeDir:
		m.Source = dir
	case typeBlock:
		m.Source = block
	}
	return m, nil
}

// parse parses one option with a value. It returns false for an option of mount(8).
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
