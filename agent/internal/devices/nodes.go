package devices

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
)

// maxDevices bounds a container's devices.
const maxDevices = 1024

// Has reports whether the kernel has a device of a type ("c" or "b") and number.
func Has(kind string, major, minor int64) bool {
	dir := map[string]string{"c": "/sys/dev/char", "b": "/sys/dev/block"}[kind]
	var st unix.Stat_t
	return unix.Stat(fmt.Sprintf("%s/%d:%d", dir, major, minor), &st) == nil
}

// All returns the device nodes in the VM's /dev, except the nodes in file systems that each container mounts itself.
func All() ([]spec.Device, error) {
	var out []spec.Device
	err := filepath.WalkDir("/dev", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			switch path {
			case "/dev/pts", "/dev/shm", "/dev/mqueue":
				return filepath.SkipDir
			}
			return nil
		}
		if e.Type()&fs.ModeDevice == 0 || strings.HasPrefix(path, "/dev/tty") && path != "/dev/tty" || path == "/dev/ptmx" ||
			path == "/dev/console" {
			return nil // a container has terminals of its own
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		d := spec.Device{
			Path: path, Type: "b", Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)),
			Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		}
		if e.Type()&fs.ModeCharDevice != 0 {
			d.Type = "c"
		}
		if out = append(out, d); len(out) > maxDevices {
			return fmt.Errorf("more than %d devices", maxDevices)
		}
		return nil
	})
	return out, err
}
