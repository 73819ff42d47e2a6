package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// parseDevice parses the value of --device as podman does: a block device of the host, its path in the pod, and the
// permissions.
func parseDevice(text string) (m mounted, err error) {
	parts := strings.Split(text, ":")
	host := parts[0]
	m.at = host
	access := "rwm"
	switch {
	case len(parts) == 3:
		m.at, access = parts[1], parts[2]
	case len(parts) == 2 && path.IsAbs(parts[1]):
		m.at = parts[1]
	case len(parts) == 2:
		access = parts[1]
	case len(parts) > 3:
		return m, errors.New("must be HOST:POD:PERMISSIONS")
	}
	if access == "" || strings.Trim(access, "rwm") != "" || !strings.Contains(access, "r") {
		return m, fmt.Errorf("permissions %q: must be r, rw or rwm", access)
	}
	if host, err = filepath.Abs(host); err != nil {
		return m, err
	}
	info, err := os.Stat(host)
	if err != nil {
		return m, err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) != fs.ModeDevice {
		return m, fmt.Errorf("%s is not a block device: a pod gets other devices from its VM", host)
	}
	m.from.HostPath, m.access = &hostPath{Path: host, Type: "BlockDevice"}, access
	return m, nil
}
