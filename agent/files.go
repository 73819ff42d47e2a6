package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
)

// filesDir holds the files that come with specifications.
const filesDir = podDir + "/files"

// file writes a file for a path in containers. Containers with the same file share it, like the files of a pod's
// kubelet.
func (a *Agent) file(destination, content string) (string, error) {
	key := destination + "\x00" + content
	a.volumes.Lock()
	defer a.volumes.Unlock()
	if at := a.files[key]; at != "" {
		return at, nil
	}
	if err := os.MkdirAll(filesDir, 0o711); err != nil {
		return "", err
	}
	at := filepath.Join(filesDir, strconv.Itoa(len(a.files)))
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		return "", err
	}
	a.files[key] = at
	return at, nil
}

// maxDevices bounds a container's devices.
const maxDevices = 1024

// hasDevice reports whether the kernel has a device of a type ("c" or "b") and number.
func hasDevice(kind string, major, minor int64) bool {
	dir := map[string]string{"c": "/sys/dev/char", "b": "/sys/dev/block"}[kind]
	var st unix.Stat_t
	return unix.Stat(fmt.Sprintf("%s/%d:%d", dir, major, minor), &st) == nil
}

// allDevices returns the device nodes in the VM's /dev, except the nodes in file systems that each container mounts itself.
func allDevices() ([]spec.Device, error) {
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
