package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/tree"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// rootOf is a container's root directory. It resolves paths like the container does: no symbolic link leads out of it.
type rootOf string

// open opens a regular file. Other kinds of files could block the agent or have an effect.
func (r rootOf) open(path string) (*os.File, error) {
	fd, err := unix.Open(string(r), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root: %w", err)
	}
	root := os.NewFile(uintptr(fd), string(r))
	defer root.Close()
	place, err := tree.InRoot(root, path, 0)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is not a regular file: %w", path, errdefs.ErrInvalidArgument)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", place.Fd()))
}

// ReadFile implements spec.Users.
func (r rootOf) ReadFile(path string, limit int) ([]byte, error) {
	f, err := r.open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)))
}

// maxRead bounds ReadFile so that the encoded data fits into a reply.
const maxRead = agentv1.MaxReply/4*3 - 1024

func (a *Agent) readFile(_ context.Context, r agentv1.ReadFile) (agentv1.File, error) {
	c, p, err := a.process(agentv1.Process{Container: r.Container})
	if err != nil {
		return agentv1.File{}, err
	}
	// A running container's own view includes its mounts.
	root := rootOf(c.root)
	if !p.hasExited() {
		root = rootOf(fmt.Sprintf("/proc/%d/root", p.pid))
	}
	path := r.Path
	if at := filepath.Clean(path); p.hasExited() && (at == terminationLog || c.lastAt != "" && at == c.lastAt) {
		root, path = rootOf(c.upper), filepath.Base(c.last) // /dev is gone with the mount namespace
	}
	f, err := root.open(path)
	if err != nil && root != rootOf(c.root) && p.hasExited() {
		f, err = rootOf(c.root).open(r.Path)
	}
	if err != nil {
		return agentv1.File{}, fmt.Errorf("container %s: %w", c.id, err)
	}
	defer f.Close()
	limit := int64(min(max(r.Limit, 0), maxRead))
	info, err := f.Stat()
	if err != nil {
		return agentv1.File{}, err
	}
	data := make([]byte, min(limit, info.Size()))
	n, err := f.ReadAt(data, max(0, info.Size()-limit))
	if err != nil && !errors.Is(err, io.EOF) {
		return agentv1.File{}, fmt.Errorf("container %s: %w", c.id, err)
	}
	return agentv1.File{Data: data[:n]}, nil
}
