package convert

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const attrReadOnly = unix.MOUNT_ATTR_RDONLY

// attribute is an option of a mount that is a flag of the mount, as in mount_setattr(2).
type attribute struct{ set, clear uint64 }

// flags are these options. Each also has a recursive form, with a leading "r".
var flags = map[string]attribute{
	"ro":            {set: attrReadOnly},
	"rw":            {clear: attrReadOnly},
	"nosuid":        {set: unix.MOUNT_ATTR_NOSUID},
	"suid":          {clear: unix.MOUNT_ATTR_NOSUID},
	"nodev":         {set: unix.MOUNT_ATTR_NODEV},
	"dev":           {clear: unix.MOUNT_ATTR_NODEV},
	"noexec":        {set: unix.MOUNT_ATTR_NOEXEC},
	"exec":          {clear: unix.MOUNT_ATTR_NOEXEC},
	"noatime":       {set: unix.MOUNT_ATTR_NOATIME, clear: unix.MOUNT_ATTR__ATIME},
	"atime":         {clear: unix.MOUNT_ATTR__ATIME},
	"relatime":      {set: unix.MOUNT_ATTR_RELATIME, clear: unix.MOUNT_ATTR__ATIME},
	"norelatime":    {clear: unix.MOUNT_ATTR__ATIME},
	"strictatime":   {set: unix.MOUNT_ATTR_STRICTATIME, clear: unix.MOUNT_ATTR__ATIME},
	"nostrictatime": {clear: unix.MOUNT_ATTR__ATIME},
	"nodiratime":    {set: unix.MOUNT_ATTR_NODIRATIME},
	"diratime":      {clear: unix.MOUNT_ATTR_NODIRATIME},
	"nosymfollow":   {set: unix.MOUNT_ATTR_NOSYMFOLLOW},
	"symfollow":     {clear: unix.MOUNT_ATTR_NOSYMFOLLOW},
}

// superblock are options of a whole file system. A bind mount keeps its source's.
var superblock = []string{
	"sync", "async", "dirsync", "mand", "nomand", "iversion", "noiversion", "lazytime", "nolazytime", "silent", "loud", "acl", "noacl",
	"quiet",
}

// add applies a flag after the earlier ones.
func (a *Attributes) add(f attribute) {
	a.Set, a.Clear = a.Set&^f.clear|f.set, a.Clear&^f.set|f.clear
}

// options are the parsed options of a mount.
type options struct {
	attributes, below Attributes
	bind, recursive   bool
	follow            bool
	propagated        bool // the mount states its propagation
	idmap, ridmap     bool
	guest             []string // for the guest's mount, without "bind"
	rest              []string // not among the known ones
	ignored           []string
}

// parseOptions sorts the options of a mount.
func parseOptions(list []string) (o options) {
	for _, option := range list {
		name, below := option, false
		if _, known := flags[name]; !known {
			name, below = strings.CutPrefix(option, "r")
		}
		f, isFlag := flags[name]
		switch {
		case isFlag:
			o.attributes.add(f)
			if below {
				o.below.add(f)
			}
			// The guest sees one mount, even if there are mounts below on the host.
			o.guest = append(slices.DeleteFunc(o.guest, func(s string) bool { return s == name }), name)
		case option == "defaults" || option == "":
		case option == "bind":
			o.bind = true
		case option == "rbind":
			o.bind, o.recursive = true, true
		case option == "idmap":
			o.idmap = true
		case option == "ridmap":
			o.idmap, o.ridmap = true, true
		case slices.Contains([]string{"private", "rprivate", "unbindable", "runbindable"}, option):
			o.propagated, o.follow = true, false
		case slices.Contains([]string{"slave", "rslave"}, option):
			o.propagated, o.follow = true, true
		case slices.Contains([]string{"shared", "rshared"}, option):
			o.propagated, o.follow = true, true
			o.ignored = append(o.ignored, option)
		case slices.Contains(superblock, option):
			o.ignored = append(o.ignored, option)
		default:
			o.rest = append(o.rest, option)
		}
	}
	return o
}

// readOnly reports whether the mount itself is read-only.
func (o options) readOnly() bool { return o.attributes.Set&attrReadOnly != 0 }
