// Package tap makes the tap devices behind VMs' network cards.
package tap

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Node is the device that taps are made with.
const Node = "/dev/net/tun"

// header is the size of what comes before each packet: that of a modern virtio device's
// (virtio_net_hdr_v1).
const header = 12

// offload is what a guest is spared: checksums and the segments of large packets. Every
// guest of ours understands as much; a VM's own process may ask for more.
const offload = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6

// Make makes a tap device of that name in the network namespace of the calling thread. The
// device is there until the file is closed, and wherever the file goes. An error that
// matches fs.ErrNotExist says that this kernel has no taps, fs.ErrPermission that the caller
// may not make one.
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

// Idle makes a tap in a network namespace of its own, which lives as long as the file: it
// leads nowhere, as the card of a VM that nobody uses does.
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
