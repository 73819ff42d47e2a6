// Package rootfs mounts the root of a container as containerd's snapshotters describe it, and unmounts it.
//
// The package handles file systems that the host's kernel or a FUSE helper mounts. Containerd's mount manager, from
// version 2.2 on, makes all other mounts before it calls the front.
package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/types"
	"golang.org/x/sys/unix"
)

// maxMounts bounds the list of mounts of one root.
const maxMounts = 256

// Mount makes the mounts of a root, in order, at the directory target. On an error it leaves none of them.
func Mount(ctx context.Context, target string, mounts []*types.Mount) (err error) {
	if len(mounts) > maxMounts {
		return fmt.Errorf("mount %s: %d mounts: must be at most %d", target, len(mounts), maxMounts)
	}
	made := false
	defer func() {
		if err != nil && made {
			err = errors.Join(err, Unmount(context.WithoutCancel(ctx), target))
		}
	}()
	for _, m := range mounts {
		at, err := place(target, m.Target)
		if err != nil {
			return err
		}
		made = true
		if err := mount(ctx, m, at); err != nil {
			return fmt.Errorf("mount %s (%s) at %s: %w", m.Source, m.Type, at, err)
		}
	}
	return nil
}

// place returns the directory for a mount with a target relative to the root. The snapshotter may have other mounts below
// the first one. It follows no link out of the root.
func place(root, target string) (string, error) {
	clean := filepath.Join("/", target)
	if clean == "/" {
		return root, nil
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return "", fmt.Errorf("mount at %s in %s: %w", target, root, err)
	}
	defer dir.Close()
	if err := dir.MkdirAll(clean[1:], 0o755); err != nil {
		return "", fmt.Errorf("mount at %s in %s: %w", target, root, err)
	}
	at, err := dir.Open(clean[1:])
	if err != nil {
		return "", fmt.Errorf("mount at %s in %s: %w", target, root, err)
	}
	defer at.Close()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", at.Fd()))
}

// mount makes one mount at a directory.
func mount(ctx context.Context, m *types.Mount, at string) error {
	if helper, kind, ok := strings.Cut(m.Type, "."); ok && (helper == "fuse" || helper == "fuse3") {
		return runHelper(ctx, helper, kind, m, at)
	}
	o, err := parse(m.Options)
	if err != nil {
		return err
	}
	source := m.Source
	if o.loop {
		device, err := attach(m.Source, o.flags&unix.MS_RDONLY != 0)
		if err != nil {
			return err
		}
		defer device.Close() // the mount keeps it
		source = device.Name()
	}
	return o.mount(source, at, m.Type)
}
