package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/blockdev"
	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/copyup"
	"github.com/bulkhead-project/bulkhead/agent/internal/shares"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// volume prepares the volume of a container's mount and returns its path.
func (a *Agent) volume(ctx context.Context, c *container, v containerv1.Mount) (at string, err error) {
	missing := true // whether to create missing directories of its SubPath
	switch source := v.Source.(type) {
	case containerv1.Files:
		at, err = a.filesAt(source.Name)
	case containerv1.Image:
		at, err = a.imageAt(c, source.ID)
		missing = false
	case containerv1.Block:
		at, err = a.blockAt(ctx, c, source, v)
	case containerv1.Dir:
		at, err = a.emptyDir(source, v.Group)
	case containerv1.Share:
		at, err = a.shareAt(source.Name)
		missing = false
	default:
		err = fmt.Errorf("volume of type %T: %w", source, errdefs.ErrNotImplemented)
	}
	if err != nil || v.SubPath == "" {
		return at, err
	}
	part, err := openPart(at, v.SubPath, missing)
	if err != nil {
		return "", err
	}
	defer unix.Close(part)
	return c.bind(part)
}

// imageAt returns the mount point of an image, which stays mounted while the container exists.
func (a *Agent) imageAt(c *container, name string) (string, error) {
	d, err := a.diskOf(c, name)
	if err != nil {
		return "", err
	}
	return d.at, nil
}

// diskOf returns a disk and keeps it in place while the container exists.
func (a *Agent) diskOf(c *container, name string) (*disk, error) {
	d, free, err := a.useDisk(name)
	if err != nil {
		return nil, err
	}
	before := c.free
	c.free = func() {
		if before != nil {
			before()
		}
		free()
	}
	return d, nil
}

// treeWait bounds operations on all files of a volume before a container gets it. It is shorter than the host's wait
// for a container.
const treeWait = 25 * time.Second

// blockAt returns the mount point of a block device. If the mount says so, an empty volume first gets the image's files
// at that place. The first container that mounts it changes the group of its files.
func (a *Agent) blockAt(ctx context.Context, c *container, b containerv1.Block, v containerv1.Mount) (string, error) {
	d, err := a.diskOf(c, b.Name)
	if err != nil {
		return "", err
	}
	if d.request.FS != string(b.FS) {
		return "", fmt.Errorf("disk %.64q has file system %q here: %w", b.Name, d.request.FS, errdefs.ErrInvalidArgument)
	}
	a.volumes.Lock()
	defer a.volumes.Unlock()
	if d.request.ReadOnly {
		return d.at, nil
	}
	ctx, cancel := context.WithTimeout(ctx, treeWait)
	defer cancel()
	if v.Copy {
		if err := copyup.Fill(ctx, c.root, v.Destination, d.at); err != nil {
			return "", fmt.Errorf("copy the image's files at %.200q to an empty volume (nocopy leaves it empty): %w", v.Destination, err)
		}
	}
	if v.Group == 0 || d.owned != 0 {
		return d.at, nil
	}
	if err := guesttree.Chown(ctx, d.at, v.Group); err != nil && !errors.Is(err, guesttree.ErrKept) { // a kubelet's pod continues then too
		return "", fmt.Errorf("change the group of disk %.64q to %d: %w", b.Name, v.Group, err)
	}
	d.owned = v.Group
	return d.at, nil
}

// deviceOf returns the device number of a block device without a file system.
func (a *Agent) deviceOf(c *container, b containerv1.Block) (major, minor uint32, err error) {
	d, err := a.diskOf(c, b.Name)
	if err != nil {
		return 0, 0, err
	}
	if d.request.FS != "" {
		return 0, 0, fmt.Errorf("disk %.64q is mounted: %w", b.Name, errdefs.ErrInvalidArgument)
	}
	return blockdev.Number(d.device)
}

// ForwarderName is the name of the process that runs Forward.
const ForwarderName = shares.Forwarder

// Forward runs the process that passes messages between FUSE and the host's share server. It returns only with an
// error.
func Forward() error {
	if err := calmMonitor(forwarderSlack, forwarderProcessors); err != nil {
		return err
	}
	return shares.Forward()
}

// shareAt returns the path of a shared directory of the host.
func (a *Agent) shareAt(name string) (string, error) {
	if !containerv1.ValidID(name) {
		return "", fmt.Errorf("name %.128q: %w", name, errdefs.ErrInvalidArgument)
	}
	port, err := boot.Port(agentv1.SharePort)
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	ring := ""
	if d := a.disks[agentv1.RingDisk]; d != nil && d.ready {
		ring = d.device
	}
	a.mu.Unlock()
	return a.shares.At(a.reaper, port, ring, name)
}

// unmountShares unmounts the shared directories of the host, if no container is left.
func (a *Agent) unmountShares(ctx context.Context) error {
	a.mu.Lock()
	busy := len(a.containers) > 0
	a.mu.Unlock()
	if busy {
		return fmt.Errorf("the host's directories are in use: %w", agentv1.ErrBusy)
	}
	if err := a.shares.Unmount(ctx); err != nil {
		return fmt.Errorf("unmount the host's directories: %w", err)
	}
	return nil
}

// emptyDir creates a pod's volume at its first use; the containers share it.
func (a *Agent) emptyDir(v containerv1.Dir, group int) (at string, err error) {
	if !containerv1.ValidID(v.Name) {
		return "", fmt.Errorf("name %.128q: %w", v.Name, errdefs.ErrInvalidArgument)
	}
	base := volumeDir
	if v.Medium == containerv1.Disk {
		root, err := a.writable()
		if err != nil {
			return "", err
		}
		base = filepath.Join(root, volumesDir)
		// Without a disk, use memory.
		if root == memoryDir {
			v.Medium = containerv1.Memory
		}
	}
	a.volumes.Lock()
	defer a.volumes.Unlock()
	at = filepath.Join(base, v.Name)
	if err := os.Mkdir(at, 0o700); errors.Is(err, os.ErrExist) {
		return at, nil
	} else if err != nil {
		return "", err
	}
	switch {
	case v.Medium == containerv1.Memory:
		data := "mode=0700"
		if v.Size > 0 {
			data += ",size=" + strconv.FormatInt(v.Size, 10)
		}
		err = unix.Mount("tmpfs", at, "tmpfs", unix.MS_NODEV, data)
	case v.Medium == containerv1.HugePages:
		data := "pagesize=2M"
		if v.Size > 0 {
			data += ",size=" + strconv.FormatInt(v.Size, 10)
		}
		err = unix.Mount("hugetlbfs", at, "hugetlbfs", unix.MS_NODEV, data)
	case v.Size > 0:
		if err = a.limit(at, v.Size); err != nil {
			err = fmt.Errorf("limit its size: %w", err)
		}
	default:
		a.count(at)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(at))
	}
	return at, setAccess(at, v.Mode, group)
}

// setAccess sets the mode and group of a volume's directory.
func setAccess(at string, mode uint32, group int) error {
	if mode == 0 {
		mode = 0o777
	}
	if group != 0 {
		if err := unix.Chown(at, 0, group); err != nil {
			return err
		}
		mode |= unix.S_ISGID | 0o770
	}
	return unix.Chmod(at, mode) // regardless of the umask
}

// within resolves paths below a directory: no link leads out of it, and the kernel's magic links are refused.
const within = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// openPart opens a part of a volume, of any kind of file, and optionally creates missing directories. The volume's
// users may change it meanwhile, so each step starts at the directory that the last one opened, and never leaves the
// volume.
func openPart(volume, part string, missing bool) (fd int, err error) {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open: %w", err)
	}
	defer unix.Close(root)
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return -1, fmt.Errorf("stat: %w", err)
	}
	names := strings.Split(filepath.Clean(part), "/")
	if !filepath.IsLocal(part) {
		return -1, fmt.Errorf("subPath %.200q leaves the volume: %w", part, errdefs.ErrInvalidArgument)
	}
	parent := root
	for i := range names {
		name := strings.Join(names[:i+1], "/")
		fd, err = unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: within})
		if missing && errors.Is(err, unix.ENOENT) {
			fd, err = makeDirectory(parent, names[i], st.Mode&0o7777)
		}
		if parent != root {
			unix.Close(parent)
		}
		if err != nil {
			if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
				err = fmt.Errorf("%w: a link in it leads out of the volume: %w", errdefs.ErrInvalidArgument, err)
			}
			return -1, fmt.Errorf("subPath %.200q: %w", part, err)
		}
		parent = fd
	}
	return fd, nil
}

// makeDirectory creates a directory with exactly that mode and opens it. If another process creates it first, its mode
// stays.
func makeDirectory(parent int, name string, mode uint32) (int, error) {
	made := unix.Mkdirat(parent, name, 0o700)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return -1, made
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if made != nil {
		return fd, nil //nolint:nilerr // another process created it; keep its mode
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// bind mounts the file open as fd at a path where no container can replace it, and returns the path.
func (c *container) bind(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("stat: %w", err)
	}
	at := filepath.Join(c.dir, "volume-"+strconv.Itoa(len(c.binds)))
	var err error
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(at, 0o700)
	} else {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		return "", err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), at, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind: %w", err)
	}
	c.binds = append(c.binds, at)
	return at, nil
}

// bindRoot mounts a directory as a container's root. Set-user-id programs in it work as in any container, regardless of
// the source mount; its devices do not.
func bindRoot(from, at string) error {
	err := unix.Mount(from, at, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NODEV, "")
	}
	if err != nil {
		return fmt.Errorf("bind the root: %w", err)
	}
	return nil
}

// unbind undoes all calls of bind.
func (c *container) unbind() error {
	for len(c.binds) > 0 {
		last := c.binds[len(c.binds)-1]
		if err := unix.Unmount(last, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", last, err)
		}
		c.binds = c.binds[:len(c.binds)-1]
	}
	return nil
}
