package spec

import (
	"fmt"
	"strconv"
	"strings"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Volume is a mount that stands for a volume of the pod.
type Volume struct {
	Type   string
	Name   string
	Memory bool // an emptyDir in tmpfs
	// HugePages is an emptyDir in hugetlbfs, of the size that a container can have.
	HugePages bool
	Size      int64  // of an emptyDir, in bytes; 0 is no limit
	Mode      uint32 // of an emptyDir's directory; 0 is 0777
	Group     int    // fsGroup; 0 is none
	SubPath   string // what of the volume is mounted; empty is all
}

// volume makes a bind mount of a volume's mount.
func (m Machine) volume(mount *Mount) error {
	v := Volume{Type: mount.Type, Name: mount.Source}
	kept := []string{"rbind"}
	for _, o := range mount.Options {
		key, value, _ := strings.Cut(o, "=")
		var err error
		switch key {
		case "medium":
			v.Memory, v.HugePages = value == "Memory", value == "HugePages"
		case "size":
			v.Size, err = strconv.ParseInt(value, 10, 64)
			if v.Size < 0 {
				err = strconv.ErrRange
			}
		case "mode":
			var mode uint64
			mode, err = strconv.ParseUint(value, 8, 12)
			v.Mode = uint32(mode)
		case "group":
			var group uint64
			group, err = strconv.ParseUint(value, 10, 31)
			v.Group = int(group)
		case "subpath":
			v.SubPath = value
		case "bind", "rbind":
		default:
			kept = append(kept, o)
		}
		if err != nil {
			return fmt.Errorf("volume %.64q: %s %.32q: %w", v.Name, key, value, agentv1.ErrInvalid)
		}
	}
	source, err := m.Volume(v)
	if err != nil {
		return fmt.Errorf("volume %.64q: %w", v.Name, err)
	}
	mount.Type, mount.Source, mount.Options = "bind", source, kept
	return nil
}
