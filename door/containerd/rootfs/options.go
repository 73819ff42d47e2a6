package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// options are the options of one mount.
type options struct {
	flags uintptr
	data  []string
	loop  bool
}

// errIDMap is the error for a root with other user ids.
var errIDMap = errors.New("the snapshotter must remap the files itself: mount option uidmap or gidmap is not supported")

// flags are the options that are flags of mount(2). A value in clears is taken away.
var (
	sets = map[string]uintptr{
		"bind": unix.MS_BIND, "rbind": unix.MS_BIND | unix.MS_REC, "defaults": 0, "dirsync": unix.MS_DIRSYNC,
		"mand": unix.MS_MANDLOCK, "noatime": unix.MS_NOATIME, "nodev": unix.MS_NODEV, "nodiratime": unix.MS_NODIRATIME,
		"noexec": unix.MS_NOEXEC, "nosuid": unix.MS_NOSUID, "relatime": unix.MS_RELATIME, "ro": unix.MS_RDONLY,
		"strictatime": unix.MS_STRICTATIME, "sync": unix.MS_SYNCHRONOUS,
	}
	clears = map[string]uintptr{
		"async": unix.MS_SYNCHRONOUS, "atime": unix.MS_NOATIME, "dev": unix.MS_NODEV, "diratime": unix.MS_NODIRATIME,
		"exec": unix.MS_NOEXEC, "nomand": unix.MS_MANDLOCK, "norelatime": unix.MS_RELATIME,
		"nostrictatime": unix.MS_STRICTATIME, "rw": unix.MS_RDONLY, "suid": unix.MS_NOSUID,
	}
)

// parse parses options as in fstab. An unknown one is the file system's.
func parse(list []string) (o options, err error) {
	for _, option := range list {
		set, isSet := sets[option]
		unset, isUnset := clears[option]
		switch {
		case isSet:
			o.flags |= set
		case isUnset:
			o.flags &^= unset
		case option == "loop":
			o.loop = true
		case strings.HasPrefix(option, "uidmap="), strings.HasPrefix(option, "gidmap="):
			return o, errIDMap
		case strings.HasPrefix(option, "X-containerd."):
			return o, fmt.Errorf("mount option %.80q is for containerd's mount manager (update containerd)", option)
		case strings.Contains(option, "\x00"):
			return o, fmt.Errorf("mount option %.80q contains a zero byte", option)
		default:
			o.data = append(o.data, option)
		}
	}
	return o, nil
}

// mount mounts source at a directory.
func (o options) mount(source, at, kind string) error {
	dir, data := compact(o.data, os.Getpagesize()-1)
	if text := strings.Join(data, ","); len(text) >= os.Getpagesize() {
		return fmt.Errorf("the mount options have %d bytes: must be less than %d", len(text), os.Getpagesize())
	}
	if err := mountIn(dir, source, at, kind, o.flags, strings.Join(data, ",")); err != nil {
		return os.NewSyscallError("mount", err)
	}
	const readOnlyBind = unix.MS_BIND | unix.MS_RDONLY
	if o.flags&readOnlyBind != readOnlyBind {
		return nil
	}
	// A new bind mount ignores all other flags.
	if err := unix.Mount("", at, "", o.flags|unix.MS_REMOUNT, ""); err != nil {
		return os.NewSyscallError("remount read-only", errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)))
	}
	return nil
}

// compact shortens the lower directories of an overlay if the options have more than most bytes. The directories become
// relative to dir, which contains all of them, and mount(2) must be called there. An image of many layers needs that.
func compact(data []string, most int) (dir string, short []string) {
	i := slices.IndexFunc(data, func(s string) bool { return strings.HasPrefix(s, lowerdir) })
	if i < 0 || len(strings.Join(data, ",")) <= most {
		return "", data
	}
	lowers := strings.Split(strings.TrimPrefix(data[i], lowerdir), ":")
	for dir = path.Dir(lowers[0]); dir != "/" && dir != "."; dir = path.Dir(dir) {
		if !slices.ContainsFunc(lowers, func(l string) bool { return !strings.HasPrefix(l, dir+"/") }) {
			break
		}
	}
	if dir == "/" || dir == "." {
		return "", data
	}
	for j, l := range lowers {
		lowers[j] = strings.TrimPrefix(l, dir+"/")
	}
	short = slices.Clone(data)
	short[i] = lowerdir + strings.Join(lowers, ":")
	return dir, short
}

const lowerdir = "lowerdir="

// mountIn calls mount(2) in a directory, or in the current one if dir is empty. Only a thread of its own may change its
// directory.
func mountIn(dir, source, at, kind string, flags uintptr, data string) error {
	if dir == "" {
		return unix.Mount(source, at, kind, flags, data)
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir(dir)
		}
		if err == nil {
			err = unix.Mount(source, at, kind, flags, data)
		}
		result <- err
	}()
	return <-result
}
