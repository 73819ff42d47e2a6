package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// hostPathModes are what the files of the types are, of those that a pod can have.
var hostPathModes = map[corev1.HostPathType]struct {
	is   fs.FileMode
	what string
}{
	corev1.HostPathDirectory: {fs.ModeDir, "a directory"}, corev1.HostPathDirectoryOrCreate: {fs.ModeDir, "a directory"},
	corev1.HostPathFile: {0, "a file"}, corev1.HostPathFileOrCreate: {0, "a file"},
	corev1.HostPathSocket:   {fs.ModeSocket, "a socket file"},
	corev1.HostPathCharDev:  {fs.ModeDevice | fs.ModeCharDevice, "a character device"},
	corev1.HostPathBlockDev: {fs.ModeDevice, "a block device"},
}

// prepareHostPath finds that a hostPath is what its type says, or makes it so. Its errors are
// the kubelet's.
func prepareHostPath(source *corev1.HostPathVolumeSource) error {
	if source.Type == nil || *source.Type == corev1.HostPathUnset {
		return nil
	}
	want, known := hostPathModes[*source.Type]
	if !known {
		return fmt.Errorf("hostPath type check failed: %s is an invalid volume type", *source.Type)
	}
	info, err := os.Stat(source.Path)
	if errors.Is(err, os.ErrNotExist) {
		switch *source.Type {
		case corev1.HostPathDirectoryOrCreate:
			return os.MkdirAll(source.Path, 0o755)
		case corev1.HostPathFileOrCreate:
			f, err := os.OpenFile(source.Path, os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	if err != nil || info.Mode().Type() != want.is {
		return fmt.Errorf("hostPath type check failed: %s is not %s", source.Path, want.what)
	}
	return nil
}
