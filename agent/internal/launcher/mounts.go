package launcher

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// ociMount is an OCI mount.
type ociMount struct {
	Destination string     `json:"destination"`
	Type        string     `json:"type"`
	Source      string     `json:"source"`
	Options     []string   `json:"options"`
	UIDMappings []struct{} `json:"uidMappings"`
	GIDMappings []struct{} `json:"gidMappings"`
}

// options are the options of mounts that are flags. As with crun, an option without a flag here takes no other back.
var options = map[string]uint64{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS,
	"dirsync": unix.MS_DIRSYNC, "mand": unix.MS_MANDLOCK, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME,
	"relatime": unix.MS_RELATIME, "strictatime": unix.MS_STRICTATIME, "bind": unix.MS_BIND, "rbind": unix.MS_BIND | unix.MS_REC,
	"shared": unix.MS_SHARED, "rshared": unix.MS_SHARED | unix.MS_REC, "slave": unix.MS_SLAVE, "rslave": unix.MS_SLAVE | unix.MS_REC,
	"private": unix.MS_PRIVATE, "rprivate": unix.MS_PRIVATE | unix.MS_REC, "unbindable": unix.MS_UNBINDABLE,
	"runbindable": unix.MS_UNBINDABLE | unix.MS_REC,
	"rw":          0, "suid": 0, "dev": 0, "exec": 0, "async": 0, "nomand": 0, "atime": 0, "diratime": 0, "norelatime": 0,
	"nostrictatime": 0, "defaults": 0,
}

// refused are options that only crun applies.
var refused = map[string]bool{
	"remount": true, "tmpcopyup": true, "rro": true, "rrw": true, "rnosuid": true, "rsuid": true, "rnodev": true, "rdev": true,
	"rnoexec": true, "rexec": true, "rsync": true, "rasync": true, "rdirsync": true, "rmand": true, "rnomand": true, "ratime": true,
	"rnoatime": true, "rdiratime": true, "rnodiratime": true, "rrelatime": true, "rnorelatime": true, "rstrictatime": true,
	"rnostrictatime": true,
}

// usual are the destinations that have options of their own with crun, if they name none.
var usual = map[string]bool{
	"/dev": true, "/dev/shm": true, "/dev/mqueue": true, "/dev/pts": true, "/sys": true, "/dev/cgroup": true, "/sys/fs/cgroup": true,
}

// mount converts the mount.
func (o ociMount) mount() (x mount, err error) {
	if len(o.UIDMappings)+len(o.GIDMappings) > 0 || len(o.Options) == 0 && usual[o.Destination] {
		return x, decline("the mount at %.64q", o.Destination)
	}
	var data []string
	for _, option := range o.Options {
		flags, ok := options[option]
		x.flags |= flags
		switch {
		case refused[option] || strings.HasPrefix(option, "idmap"):
			return x, decline("option %.64q of the mount at %.64q", option, o.Destination)
		case !ok:
			data = append(data, option)
		}
	}
	x.source, x.target, x.kind, x.data = o.Source, o.Destination, o.Type, strings.Join(data, ",")
	bind := x.flags&unix.MS_BIND != 0
	if bind {
		x.kind = ""
	}
	if x.source == "" {
		x.source = o.Type
	}
	switch {
	case bind && !path.IsAbs(o.Source), !bind && (o.Type == "" || o.Type == "bind" || o.Type == "cgroup"),
		o.Type == "proc" && len(data) > 0:
		return x, decline("the mount at %.64q", o.Destination)
	}
	return x, nil
}

// ociDevice is an OCI device.
type ociDevice struct {
	Path  string  `json:"path"`
	Type  string  `json:"type"`
	Major uint32  `json:"major"`
	Minor uint32  `json:"minor"`
	Mode  *uint32 `json:"fileMode"`
	UID   uint32  `json:"uid"`
	GID   uint32  `json:"gid"`
}

// deviceMode is the mode of a device that names none.
const deviceMode = 0o666

// node converts the device.
func (o ociDevice) node() (n node, err error) {
	kind := map[string]uint32{"c": unix.S_IFCHR, "u": unix.S_IFCHR, "b": unix.S_IFBLK, "p": unix.S_IFIFO}[o.Type]
	directory, name := path.Split(o.Path)
	switch {
	case kind == 0, !path.IsAbs(o.Path), name == "", name == ".", name == "..", o.Major >= 1<<12, o.Minor >= 1<<20:
		return n, decline("device %.64q", o.Path)
	}
	mode := uint32(deviceMode)
	if o.Mode != nil {
		mode = *o.Mode
	}
	return node{
		directory: strings.Trim(directory, "/"), name: name, mode: kind | mode&0o7777,
		device: uint32(unix.Mkdev(o.Major, o.Minor)), uid: o.UID, gid: o.GID,
	}, nil
}
