package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/tap"
)

// tapName is the VM's card in the pod's namespace. The card of a further interface is furtherTap with a number, from 1
// on.
const (
	tapName    = "tap0"
	furtherTap = "bulkhead"
)

// isTap reports whether an interface is a card of the VM.
func isTap(l netlink.Link) bool {
	name := l.Attrs().Name
	return name == tapName || l.Type() == "tuntap" && strings.HasPrefix(name, furtherTap)
}

// makeNamespace creates a network namespace with a loopback that is up and the tap of a VM. A mount at path holds it.
func makeNamespace(path string) (card *os.File, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return nil, err
	}
	f.Close()
	err = apart(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if card, err = prepare(); err != nil {
			return err
		}
		err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		return os.NewSyscallError("mount", err)
	})
	if err != nil {
		if card != nil {
			card.Close()
		}
		return nil, errors.Join(fmt.Errorf("create a network namespace: %w", err), removeNamespace(path))
	}
	return card, nil
}

// prepare sets up the calling thread's namespace for a pod.
func prepare() (card *os.File, err error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find the loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("bring the loopback up: %w", err)
	}
	return makeTap(tapName)
}

// makeTap creates a tap in the calling thread's namespace.
func makeTap(name string) (*os.File, error) {
	card, err := tap.Make(name)
	if err != nil {
		return nil, err
	}
	// The namespace's own kernel must send nothing to the guest.
	silent := "/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6"
	if err := os.WriteFile(silent, []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		card.Close()
		return nil, fmt.Errorf("disable IPv6 on the tap: %w", err)
	}
	return card, nil
}

// silence disconnects the VM from a pod's network, if it has one.
func silence(path string) error {
	if !holds(path) {
		return nil
	}
	return inside(path, func() error {
		links, err := list(netlink.LinkList)
		if err != nil {
			return fmt.Errorf("list the interfaces: %w", err)
		}
		for _, l := range links {
			if !isTap(l) {
				continue
			}
			// The VM may end, and its taps with it.
			if err := netlink.LinkSetDown(l); err != nil && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("bring the VM's tap down: %w", err)
			}
		}
		return nil
	})
}

// removeNamespace removes a namespace and its interfaces. It does nothing if the namespace is gone.
func removeNamespace(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // no mount is left
			break
		}
		if err != nil {
			return fmt.Errorf("remove network namespace %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// holds reports whether a namespace is mounted at path: after a reboot there is none.
func holds(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// inside runs f in the namespace at path.
func inside(path string, f func() error) error {
	return apart(func() error {
		ns, err := os.Open(path)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
		return f()
	})
}

// apart runs f in a thread that ends with f.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocks
		done <- f()
	}()
	return <-done
}
