// Package tap creates the tap devices behind VMs' network cards.
package tap

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Node is the device for creating taps.
const Node = "/dev/net/tun"

// header is the size of the header before each packet, as in a modern virtio device (virtio_net_hdr_v1).
const header = 12

// offload is the work that guests skip: checksums, and splitting large packets. Every guest supports these; a VM's
// process may ask for more.
const offload = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6

// Make creates a tap device with that name in the network namespace of the calling thread. The device exists until the
// file is closed, wherever the file is passed. The error matches fs.ErrNotExist if this kernel has no taps, and
// fs.ErrPermission if the caller may not create one.
func Make(name string) (*os.File, error) {
	f, err := os.OpenFile(Node, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make tap %s: %w", name, err)
	}
	if err := set(int(f.Fd()), name); err != nil {
		f.Close()
		return nil, fmt.Errorf("make tap %s: %w", name, os.NewSyscallError("ioctl", err))
	}
	return f, nil
}

// ErrNoTap is matched by the error for a file that is not a tap as Make creates it.
var ErrNoTap = errors.New("it must be a tap with headers of 12 bytes (IFF_TAP, IFF_NO_PI, IFF_VNET_HDR)")

// Check returns an error if a file is not a tap as Make creates it.
func Check(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	right := false
	err = raw.Control(func(fd uintptr) {
		r, err := unix.NewIfreq("")
		if err != nil || unix.IoctlIfreq(int(fd), unix.TUNGETIFF, r) != nil {
			return
		}
		const kind = unix.IFF_TAP | unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE
		size, err := unix.IoctlGetInt(int(fd), unix.TUNGETVNETHDRSZ)
		right = err == nil && size == header && r.Uint16()&kind == unix.IFF_TAP|unix.IFF_NO_PI|unix.IFF_VNET_HDR
	})
	if err == nil && !right {
		err = ErrNoTap
	}
	return err
}

func set(fd int, name string) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, header); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offload)
}
