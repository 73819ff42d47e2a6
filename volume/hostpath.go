package volume

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/place"
)

// hostPathModes are the file types for the types of a hostPath.
var hostPathModes = map[corev1.HostPathType]struct {
	is   uint32 // as in stat(2)
	what string
}{
	corev1.HostPathDirectory: {unix.S_IFDIR, "a directory"}, corev1.HostPathDirectoryOrCreate: {unix.S_IFDIR, "a directory"},
	corev1.HostPathFile: {unix.S_IFREG, "a file"}, corev1.HostPathFileOrCreate: {unix.S_IFREG, "a file"},
	corev1.HostPathSocket:   {unix.S_IFSOCK, "a socket file"},
	corev1.HostPathCharDev:  {unix.S_IFCHR, "a character device"},
	corev1.HostPathBlockDev: {unix.S_IFBLK, "a block device"},
}

// PrepareHostPath checks that a hostPath has its type, or creates it where rules allow that. Its errors are the
// kubelet's.
func PrepareHostPath(ctx context.Context, rules place.Rules, source *corev1.HostPathVolumeSource) error {
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
	p, err := rules.Open(ctx, source.Path, place.OpenOptions{Missing: missing})
	if err == nil {
		defer p.Close()
		if p.Directory && want.is == unix.S_IFDIR || !p.Directory && want.is == unix.S_IFREG {
			return nil
		}
	}
	// The engine rejects other kinds of files if it does not support them.
	if errors.Is(err, place.ErrKind) && isKind(ctx, source.Path, want.is) {
		return nil
	}
	if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, place.ErrKind) {
		return fmt.Errorf("hostPath type check failed: %s is not %s", source.Path, want.what)
	}
	return fmt.Errorf("hostPath type check failed: %w", err)
}

func isKind(ctx context.Context, path string, kind uint32) bool {
	n, err := place.Stat(ctx, path)
	return err == nil && n.Mode&unix.S_IFMT == kind
}
