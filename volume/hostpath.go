package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/place"
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

// prepareHostPath finds that a hostPath is what its type says, or makes it so where rules let pods'
// things be. Its errors are the kubelet's.
func prepareHostPath(ctx context.Context, rules place.Rules, source *corev1.HostPathVolumeSource) error {
	if source.Type == nil || *source.Type == corev1.HostPathUnset {
		return nil
	}
	want, known := hostPathModes[*source.Type]
	if !known {
		return fmt.Errorf("hostPath type check failed: %s is an invalid volume type", *source.Type)
	}
	missing := place.Fail
	switch *source.Type {
	case corev1.HostPathDirectoryOrCreate:
		missing = place.MakeDir
	case corev1.HostPathFileOrCreate:
		missing = place.MakeFile
	}
	p, err := rules.Open(ctx, source.Path, place.How{Missing: missing})
	if err == nil {
		defer p.Close()
		if p.Directory == want.is.IsDir() && (want.is.IsDir() || want.is.IsRegular()) {
			return nil
		}
	}
	// What is no directory and no regular file is for the engine to refuse.
	if errors.Is(err, place.ErrKind) && isKind(source.Path, want.is) {
		return nil
	}
	if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, place.ErrKind) {
		return fmt.Errorf("hostPath type check failed: %s is not %s", source.Path, want.what)
	}
	return fmt.Errorf("hostPath type check failed: %w", err)
}

func isKind(path string, kind fs.FileMode) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == kind
}
