// Package tap creates the tap devices behind VMs' network cards.
package tap

import (
	"fmt"
	"os"
	"runtime"

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

// Idle creates a tap in a network namespace of its own, which exists as long as the file. It leads nowhere, and serves
// as the card of an unused VM.
func Idle() (f *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is never unlocked, and ends with its goroutine.
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make an idle tap: %w", os.NewSyscallError("unshare", err))
			return
		}
		f, err = Make("idle")
	}()
	<-done
	return f, err
}
