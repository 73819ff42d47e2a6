package rootfs

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/containerd/containerd/api/types"
)

// runHelper mounts a FUSE file system, such as fuse3.fuse-overlayfs of a rootless containerd, with mount.fuse or
// mount.fuse3. The helper's process serves the file system until it is unmounted.
func runHelper(ctx context.Context, helper, kind string, m *types.Mount, at string) error {
	args := []string{m.Source, at}
	if len(m.Options) > 0 {
		args = append(args, "-o", strings.Join(m.Options, ","))
	}
	args = append(args, "-t", kind)
	out, err := exec.CommandContext(ctx, "mount."+helper, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run mount.%s: %w: %.300s", helper, err, bytes.TrimSpace(out))
	}
	return nil
}
