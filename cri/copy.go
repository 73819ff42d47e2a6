package cri

import (
	"context"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// CopyRequest names a place in a container. The container may have ended, as
// long as its pod's machine runs.
type CopyRequest struct {
	ContainerID string
	Path        string
	// In takes a tar stream; else one is sent.
	In bool
	// Into says that Path is a directory that takes whatever comes; else the
	// stream is one tree, which becomes Path where that is no directory.
	Into bool
}

// CopyURL returns the URL of a copy's stream; see Exec. It is framed as a
// process's: a tar stream is its stdin or stdout, its stderr tells what was left
// out, and it ends with exit code 0 or with an error.
func (s *Service) CopyURL(ctx context.Context, r CopyRequest) (string, error) {
	c, err := s.findContainer(r.ContainerID)
	if err != nil {
		return "", err
	}
	shim, err := c.pod.shim()
	if err != nil {
		return "", err
	}
	kind := shimv1.OpenRequest_COPY_OUT
	if r.In {
		kind = shimv1.OpenRequest_COPY_IN
	}
	address, err := streamURL(ctx, shim, &shimv1.OpenRequest{Kind: kind, ContainerId: c.ID, Path: r.Path, Into: r.Into})
	return address, fail(err, "copy of container %s", c.name)
}
