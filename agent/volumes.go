package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/blockdev"
	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/disks"
	"github.com/bulkhead-project/bulkhead/agent/internal/scratch"
	"github.com/bulkhead-project/bulkhead/agent/internal/shares"
	"github.com/bulkhead-project/bulkhead/agent/internal/subpath"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// volume prepares the volume of a container's mount and returns its path.
func (a *Agent) volume(ctx context.Context, c *container, v containerv1.Mount) (at string, err error) {
	missing := true // whether to create missing directories of its SubPath
	switch source := v.Source.(type) {
	case containerv1.Files:
		at, err = a.volumes.At(source.Name)
	case containerv1.Image:
		at, err = a.imageAt(c, source.ID)
		missing = false
	case containerv1.Block:
		at, err = a.blockAt(ctx, c, source, v)
	case containerv1.Dir:
		at, err = a.space.EmptyDir(source, v.Group)
	case containerv1.Share:
		at, err = a.shareAt(source.Name)
		missing = false
	default:
		err = fmt.Errorf("volume of type %T: %w", source, errdefs.ErrNotImplemented)
	}
	if err != nil || v.SubPath == "" {
		return at, err
	}
	part, err := subpath.Open(at, v.SubPath, missing)
	if err != nil {
		return "", err
	}
	defer unix.Close(part)
	return c.bind(part)
}

// diskOf returns a disk and keeps it in place while the container exists.
func (a *Agent) diskOf(c *container, name string) (*disks.Disk, error) {
	d, release, err := a.disks.Use(name)
	if err == nil {
		c.releases = append(c.releases, release)
	}
	return d, err
}

// imageAt returns the mount point of an image.
func (a *Agent) imageAt(c *container, name string) (string, error) {
	d, err := a.diskOf(c, name)
	if err != nil {
		return "", err
	}
	return d.At, nil
}

// blockAt returns the mount point of a block device, which is prepared for the container's mount v.
func (a *Agent) blockAt(ctx context.Context, c *container, b containerv1.Block, v containerv1.Mount) (string, error) {
	d, err := a.diskOf(c, b.Name)
	if err != nil {
		return "", err
	}
	if d.FS != string(b.FS) {
		return "", fmt.Errorf("disk %.64q has file system %q here: %w", b.Name, d.FS, errdefs.ErrInvalidArgument)
	}
	return d.At, d.Prepare(ctx, c.root, v)
}

// deviceOf returns the device number of a block device without a file system.
func (a *Agent) deviceOf(c *container, b containerv1.Block) (major, minor uint32, err error) {
	d, err := a.diskOf(c, b.Name)
	if err != nil {
		return 0, 0, err
	}
	if d.FS != "" {
		return 0, 0, fmt.Errorf("disk %.64q is mounted: %w", b.Name, errdefs.ErrInvalidArgument)
	}
	return blockdev.Number(d.Device)
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
	ring := ""
	if d := a.disks.Find(agentv1.RingDisk); d != nil {
		ring = d.Device
	}
	return a.shares.At(a.reaper, port, ring, name)
}

func (a *Agent) mount(ctx context.Context, m agentv1.Mount) error {
	var prepare func(at string) error
	if m.Name == scratch.Disk {
		prepare = a.space.Prepare
	}
	return a.disks.Mount(ctx, m, prepare)
}

// unmount unmounts a disk, or the shared directories of the host if no container is left.
func (a *Agent) unmount(ctx context.Context, m agentv1.Unmount) error {
	if m.Name != agentv1.SharesMount {
		return a.disks.Unmount(ctx, m.Name)
	}
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
