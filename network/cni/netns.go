package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/thread"
	"github.com/bulkhead-project/bulkhead/network/adopt"
)

// tapName is the VM's card in the pod's namespace.
const tapName = "tap0"

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
	err = thread.Do(func() error {
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
	return adopt.MakeTap(nil, tapName)
}

// silence disconnects the VM from a pod's network, if it has one.
func silence(path string) error {
	if !holds(path) {
		return nil
	}
	return inside(path, func() error { return adopt.Silence(tapName) })
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
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return adopt.Inside(ns, f)
}
