package convert

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/oci"
)

// bind returns a bind mount with options in JSON.
func bind(source, at, options string) string {
	return `"mounts":[{"destination":"` + at + `","type":"bind","source":"` + source + `","options":["` +
		strings.ReplaceAll(options, ",", `","`) + `"]}]`
}

func TestMountOptions(t *testing.T) {
	const ro, nosuid, nodev, noexec = unix.MOUNT_ATTR_RDONLY, unix.MOUNT_ATTR_NOSUID, unix.MOUNT_ATTR_NODEV, unix.MOUNT_ATTR_NOEXEC
	const noatime, anyAtime = unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME
	for options, want := range map[string]struct {
		tree  Tree
		guest string
		notes int
	}{
		"rbind,rw,rprivate": {Tree{Recursive: true, Attributes: Attributes{Clear: ro}}, "rw,rprivate", 0},
		"bind,ro,nosuid":    {Tree{Attributes: Attributes{Set: ro | nosuid}}, "ro,nosuid,rprivate", 0},
		"rbind,ro,rw":       {Tree{Recursive: true, Attributes: Attributes{Clear: ro}}, "ro,rw,rprivate", 0},
		"rbind,rro,rnodev,noexec": {
			Tree{Recursive: true, Attributes: Attributes{Set: ro | nodev | noexec}, Below: Attributes{Set: ro | nodev}},
			"ro,nodev,noexec,rprivate", 0,
		},
		"rbind,rslave":          {Tree{Recursive: true, Follow: true}, "rslave", 0},
		"rbind,slave,private":   {Tree{Recursive: true}, "rprivate", 0},
		"bind,rshared":          {Tree{Follow: true}, "rslave", 1},
		"bind,unbindable":       {Tree{}, "rprivate", 0},
		"bind,noatime":          {Tree{Attributes: Attributes{Set: noatime, Clear: anyAtime}}, "noatime,rprivate", 0},
		"bind,noatime,relatime": {Tree{Attributes: Attributes{Clear: anyAtime}}, "noatime,relatime,rprivate", 0},
		"bind,sync,defaults":    {Tree{}, "rprivate", 1},
		"suid,dev,exec":         {Tree{Attributes: Attributes{Clear: nosuid | nodev | noexec}}, "suid,dev,exec,rprivate", 0},
	} {
		p := plan(t, bind("/x", "/a", options))
		want.tree.Source, want.tree.Destination, want.tree.Dir = "/x", "/a", true
		if diff := cmp.Diff(want.tree, p.Trees[1]); diff != "" {
			t.Errorf("%s: %s", options, diff)
		}
		if got := strings.Join(p.Guest.Mounts[0].Options, ","); got != want.guest || len(p.Ignored) != want.notes {
			t.Errorf("%s: guest %s, notes %v", options, got, p.Ignored)
		}
	}
	// Without an option the mount has the root's propagation.
	p := plan(t, bind("/x", "/a", "rbind")+`,"linux":{"rootfsPropagation":"rslave"}`)
	if !p.Trees[0].Follow || !p.Trees[1].Follow || p.Guest.Linux.RootfsPropagation != "rslave" {
		t.Errorf("trees %+v", p.Trees)
	}
}

// TestSysWithCgroups: podman 5 binds /sys, and then mounts cgroups there.
func TestSysWithCgroups(t *testing.T) {
	for at, want := range map[string]string{"/sys": "sysfs sysfs ro,nosuid", "/host": "bind /sys rbind,rprivate,ro,nosuid"} {
		sys := strings.TrimSuffix(bind("/sys", at, "rbind,ro,nosuid"), "]")
		p := plan(t, sys+`,{"destination":"/sys/fs/cgroup","type":"cgroup","source":"cgroup","options":["ro"]}]`)
		m := p.Guest.Mounts[0]
		if got := m.Type + " " + m.Source + " " + strings.Join(m.Options, ","); m.Destination != at || got != want {
			t.Errorf("%s: got %s at %s, want %s", at, got, m.Destination, want)
		}
	}
}

func TestMountsOfTheGuest(t *testing.T) {
	host := world{
		"/null": {Type: Char, Major: 1, Minor: 3}, "/tun": {Type: Char, Major: 10, Minor: 200},
		"/disk": {Type: Block, Major: 8, Minor: 16, Mode: 0o640, GID: 6},
	}
	for name, tc := range map[string]struct {
		fields, want string // the guest's first mount
		trees, notes int
	}{
		"proc":             {bind("/proc", "/host/proc", "rbind,ro"), "bind /proc rbind,rprivate,ro", 1, 0},
		"a part of sys":    {bind("/sys/fs/bpf", "/bpf", "bind"), "bind /sys/fs/bpf bind,rprivate", 1, 0},
		"cgroups":          {bind("/sys/fs/cgroup", "/cg", "bind"), "bind /sys/fs/cgroup bind,rprivate", 1, 0},
		"one of cgroups 1": {bind("/sys/fs/cgroup/systemd", "/cg", "bind"), "", 1, 1},
		"dev":              {bind("/dev/", "/host/dev", "rbind"), "bind /dev rbind,rprivate", 1, 0},
		"the host's shm":   {bind("/dev/shm", "/dev/shm", "rbind"), "bind /dev/shm rbind,rprivate", 1, 0},
		"shm": {
			bind("/run/c/shm", "/dev/shm", "rbind,nodev"),
			"bulkhead.emptydir shm-0839628483d6ba31d7ae2171d63ca8ef nodev,medium=Memory,size=65536000,mode=1777", 1, 0,
		},
		"a directory there": {bind("/data", "/dev/shm", "rbind"), "bulkhead.share /1 rprivate", 2, 0},
		"null":              {bind("/null", "/etc/masked", "bind,ro"), "bind /dev/null bind,rprivate,ro", 1, 0},
		"a disk":            {bind("/disk", "/dev/sdb", "bind"), "bulkhead.block /disk/0 access=rwm,mode=640,group=6", 1, 0},
		"a read-only disk":  {bind("/disk", "/dev/sdb", "bind,ro"), "bulkhead.block /disk/0 disk=ro,access=r,mode=640,group=6", 1, 0},
		"none with bind": {
			`"mounts":[{"destination":"/a","type":"none","source":"/x","options":["bind"]}]`, "bulkhead.share /1 rprivate", 2, 0,
		},
		"tmpfs": {
			`"mounts":[{"destination":"run","type":"tmpfs","source":"/x","options":["size=1m","tmpcopyup"]}]`, "tmpfs tmpfs size=1m,tmpcopyup", 1, 0,
		},
		"shared tmpfs":       {`"mounts":[{"destination":"/a","type":"tmpfs","options":["rshared","mode=700"]}]`, "tmpfs tmpfs mode=700", 1, 1},
		"a device elsewhere": {`"linux":{"devices":[{"path":"/x","type":"c","major":1,"minor":3}]}`, "bind /dev/null bind,rprivate", 1, 0},
		"overlay": {`"mounts":[{"destination":"/a","type":"overlay","source":"overlay",
			"options":["lowerdir=/l","upperdir=/u","workdir=/w","ro","private"]}]`,
			"bulkhead.share /1 ro,rprivate", 2, 0},
	} {
		o := defaults()
		o.Host = host
		p, err := Decode(with(t, tc.fields), o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := ""
		for _, m := range p.Guest.Mounts {
			got = m.Type + " " + m.Source + " " + strings.Join(m.Options, ",")
		}
		if got != tc.want || len(p.Trees) != tc.trees || len(p.Ignored) != tc.notes {
			t.Errorf("%s: %q, trees %+v, notes %v", name, got, p.Trees, p.Ignored)
		}
	}
	o := defaults()
	o.Host = host
	p, err := Decode(with(t, bind("/tun", "/dev/net/tun", "bind")+`,"linux":{"resources":{"devices":[{"allow":false}]}}`), o)
	if err != nil || len(p.Guest.Linux.Resources.Devices) != 2 || *p.Guest.Linux.Resources.Devices[1].Major != 10 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestMountsRefuse(t *testing.T) {
	const ids = `"uidMappings":[{"size":1}],"gidMappings":[{"size":1}]`
	for fields, class := range map[string]error{
		bind("/socket", "/s", "bind"):          oci.ErrNotSupported,
		bind("/fifo", "/s", "bind"):            oci.ErrNotSupported,
		bind("/gpu", "/dev/dri/card0", "bind"): oci.ErrNotSupported,
		bind("/missing", "/s", "bind"):         os.ErrNotExist,
		bind("", "/s", "bind"):                 oci.ErrInvalid,
		bind("/x", "/", "bind"):                oci.ErrInvalid,
		bind("/x", "/a/..", "bind"):            oci.ErrInvalid,
		bind("/x", "", "bind"):                 oci.ErrInvalid,
		bind("/x", "/a", "remount"):            oci.ErrNotSupported,
		bind("/x", "/a", "subpath=../.."):      oci.ErrNotSupported,
		bind("/x", "/a", "cache=always"):       oci.ErrNotSupported,
		bind("/x", "/a", "idmap"):              oci.ErrInvalid,
		bind("/x", "/a", "idmap=uids=0-0-1"):   oci.ErrNotSupported,
		`"mounts":[{"destination":"/a","type":"bulkhead.emptydir","source":"x"}]`:                                           oci.ErrNotSupported,
		`"mounts":[{"destination":"/a","type":"nfs","source":"x"}]`:                                                         oci.ErrNotSupported,
		`"mounts":[{"destination":"/a","source":"x"}]`:                                                                      oci.ErrInvalid,
		`"mounts":[{"destination":"/a","type":"tmpfs",` + ids + `}]`:                                                        oci.ErrNotSupported,
		`"mounts":[{"destination":"/a","type":"bind","source":"/x","uidMappings":[{"size":1}]}]`:                            oci.ErrInvalid,
		`"mounts":[{"destination":"/a","type":"bind","source":"/x","uidMappings":[{"size":0}],"gidMappings":[{"size":1}]}]`: oci.ErrInvalid,
		`"mounts":[{"destination":"/a","type":"overlay","options":["upperdir=/u"]}]`:                                        oci.ErrInvalid,
	} {
		o := defaults()
		o.Host = world{"/socket": {Type: Socket}, "/fifo": {Type: FIFO}, "/gpu": {Type: Char, Major: 226}}
		if _, err := Decode(with(t, fields), o); !errors.Is(err, class) || !strings.Contains(err.Error(), "mounts[0]") {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

func TestIDMap(t *testing.T) {
	const container = `"linux":{"namespaces":[{"type":"user"},{"type":"pid"}],"uidMappings":[{"hostID":5,"size":1}],
		"gidMappings":[{"hostID":6,"size":1}]}`
	p := plan(t, bind("/x", "/a", "bind,idmap")+","+container)
	if m := p.Trees[1].IDMap; m == nil || m.UIDs[0].HostID != 5 || m.GIDs[0].HostID != 6 || m.Recursive {
		t.Errorf("the container's mapping: %+v", m)
	}
	if p.UIDs[0].HostID != 5 || len(p.Guest.Linux.UIDMappings) > 0 || p.Namespaces.User.Kind != Own {
		t.Errorf("plan %+v", p)
	}
}
