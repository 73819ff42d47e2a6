package testcsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// size is the size of each volume, in bytes.
const size = 16 << 20

// NodeStageVolume mounts a volume's disk, and creates it first if needed.
func (d *Driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	d.staged[r.GetVolumeId()] = r
	d.mu.Unlock()
	disk, err := d.disk(ctx, r.GetVolumeId())
	switch {
	case err != nil, mounted(r.GetStagingTargetPath()):
	case r.GetVolumeCapability().GetBlock() != nil:
		err = d.attach(ctx, r.GetStagingTargetPath(), disk)
	default:
		err = mount(ctx, "-o", "loop", disk, r.GetStagingTargetPath())
	}
	return &csi.NodeStageVolumeResponse{}, err
}

// NodeUnstageVolume is the inverse of NodeStageVolume.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, errors.Join(d.detach(ctx, r.GetStagingTargetPath()), unmount(r.GetStagingTargetPath()))
}

// NodePublishVolume binds a staged volume to its place in a pod. A volume that lives with its pod is a tmpfs of its
// own.
func (d *Driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	d.published[r.GetVolumeId()] = r
	d.mu.Unlock()
	at := r.GetTargetPath()
	if mounted(at) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		err := os.WriteFile(at, nil, 0o600)
		if err == nil {
			err = mount(ctx, "--bind", d.loop(r.GetStagingTargetPath()), at)
		}
		return &csi.NodePublishVolumeResponse{}, err
	}
	if err := os.MkdirAll(at, 0o750); err != nil {
		return nil, err
	}
	if r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" {
		return &csi.NodePublishVolumeResponse{}, mount(ctx, "-t", "tmpfs", "-o", "size=1m", "tmpfs", at)
	}
	err := mount(ctx, "--bind", r.GetStagingTargetPath(), at)
	if err == nil && r.GetReadonly() {
		err = mount(ctx, "-o", "remount,bind,ro", at)
	}
	return &csi.NodePublishVolumeResponse{}, err
}

// NodeUnpublishVolume is the inverse of NodePublishVolume.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	err := unmount(r.GetTargetPath())
	if err == nil {
		err = os.Remove(r.GetTargetPath())
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return &csi.NodeUnpublishVolumeResponse{}, err
}

// NodeExpandVolume enlarges a mounted volume's disk. It does not enlarge the file system: the kernel requires
// CAP_SYS_RESOURCE for that.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	disk := filepath.Join(d.dir, filepath.Base(r.GetVolumeId()))
	if err := os.Truncate(disk, r.GetCapacityRange().GetRequiredBytes()); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "losetup", "--noheadings", "--output", "NAME", "--associated", disk).Output()
	if err != nil {
		return nil, fmt.Errorf("losetup: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "losetup", "--set-capacity", strings.TrimSpace(string(out))).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("losetup: %w: %s", err, out)
	}
	return &csi.NodeExpandVolumeResponse{}, nil
}

// disk returns the file of a volume, with a file system on it.
func (d *Driver) disk(ctx context.Context, volume string) (string, error) {
	at := filepath.Join(d.dir, filepath.Base(volume))
	f, err := os.OpenFile(at, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return at, nil
	}
	if err != nil {
		return "", err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", at).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return at, nil
}

// attach attaches a loop device to a disk, once per staging path.
func (d *Driver) attach(ctx context.Context, staged, disk string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loops[staged] != "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, "losetup", "--find", "--show", disk).Output()
	if err != nil {
		return fmt.Errorf("losetup: %w", err)
	}
	d.loops[staged] = strings.TrimSpace(string(out))
	return nil
}

// detach is the inverse of attach.
func (d *Driver) detach(ctx context.Context, staged string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loops[staged] == "" {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "losetup", "--detach", d.loops[staged]).CombinedOutput(); err != nil {
		return fmt.Errorf("losetup: %w: %s", err, out)
	}
	delete(d.loops, staged)
	return nil
}

// loop returns the device for a staging path.
func (d *Driver) loop(staged string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loops[staged]
}

func mount(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "mount", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %v: %w: %s", args, err, out)
	}
	return nil
}

// mounted reports whether an earlier call has mounted a file system there.
func mounted(at string) bool {
	is, err := mountinfo.Mounted(at)
	return err == nil && is
}

// unmount succeeds if nothing is mounted.
func unmount(at string) error {
	if err := unix.Unmount(at, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}

// Unmounted returns an error while one of the volumes is mounted.
func (d *Driver) Unmounted() error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(d.root, "plugins")))
	if err == nil && len(mounts) > 0 {
		err = fmt.Errorf("%s is mounted", mounts[0].Mountpoint)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && len(d.loops) > 0 {
		err = fmt.Errorf("devices are left: %v", d.loops)
	}
	return err
}
