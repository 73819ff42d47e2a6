package claims

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ext4 is the file system that pods' VMs mount.
const ext4 = "ext4"

// edge is how much is read of a device's beginning and end, in bytes. The signatures of file systems, partitions and
// volume managers are there.
const edge = 1 << 20

// formatTimeout limits the creation of a file system.
const formatTimeout = 2 * time.Minute

// disk checks that a local PersistentVolume's device has ext4. It formats a blank device, as a kubelet does. The pod's
// VM mounts it; the host only reads the parts with signatures. A device that had a file system when the pod got it is
// never formatted: a blank one is another device, or it has lost the pod's data.
func (v *Volumes) disk(ctx context.Context, r record) (Place, error) {
	local := r.PV.Spec.Local
	if fs := local.FSType; fs != nil && *fs != "" && *fs != ext4 {
		return Place{}, fmt.Errorf("file system %q of %s: the VMs of this node mount only %s", *fs, local.Path, ext4)
	}
	dev, found, free, err := v.k.devices.probe(ctx, local.Path)
	if err != nil {
		return Place{}, err
	}
	defer free()
	switch {
	case found == ext4:
	case found != "":
		return Place{}, fmt.Errorf("%s must be blank or have %s", local.Path, ext4)
	case r.ReadOnly:
		return Place{}, errors.New("cannot mount unformatted disk " + local.Path + " as we are manipulating it in read-only mode")
	case r.Place != nil:
		return Place{}, fmt.Errorf("%s is blank, but had %s when the pod got it", local.Path, ext4)
	default:
		if err := format(ctx, dev); err != nil {
			return Place{}, err
		}
	}
	if err := stillAt(local.Path, dev); err != nil {
		return Place{}, err
	}
	return Place{Path: local.Path, Disk: true, ReadOnly: r.ReadOnly}, nil
}

// format creates a file system on the open device that was probed, even if its path leads elsewhere by now. After a
// failure the device is neither blank nor ext4, so no pod gets it. The end of the pod does not interrupt it.
func format(ctx context.Context, dev *os.File) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), formatTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{dev} // its descriptor 3
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	if found, err := exec.LookPath("/usr/sbin/mkfs.ext4"); err == nil { // may be missing from the node's PATH
		cmd.Path, cmd.Err = found, nil
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format %s: mkfs.ext4: %w: %.500q", dev.Name(), err, bytes.TrimSpace(out))
	}
	return nil
}

// signature returns ext4, an empty string for a blank device, and "?" for any other. The contents are untrusted: a pod
// may have written them.
func signature(f *os.File) (string, error) {
	path := f.Name()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", fmt.Errorf("measure %s: %w", path, err)
	}
	head := make([]byte, min(size, edge))
	if _, err := f.ReadAt(head, 0); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	// The superblock is at 1 KiB, and its magic number 56 bytes into it.
	if at := 1024 + 56; len(head) > at+2 && binary.LittleEndian.Uint16(head[at:]) == 0xef53 {
		return ext4, nil
	}
	tail := make([]byte, len(head))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if blank := make([]byte, len(head)); bytes.Equal(head, blank) && bytes.Equal(tail, blank) {
		return "", nil
	}
	return "?", nil
}

// fsGroup returns the group of a pod's volumes, or nil.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
