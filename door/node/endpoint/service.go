package endpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// service is the runtime's, with what the engine does itself.
type service struct {
	internalapi.RuntimeService
	volumes string
	relist  relist
}

// CreateContainer makes the directories of the pod's emptyDirs first, which the engine has in the guest.
func (s *service) CreateContainer(
	ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, of *runtimeapi.PodSandboxConfig,
) (string, error) {
	for _, m := range config.GetMounts() {
		if below(s.volumes, m.GetHostPath()) && strings.Contains(m.GetHostPath(), "/"+layout.EmptyDir+"/") {
			if err := emptyDir(s.volumes, m.GetHostPath()); err != nil {
				return "", err
			}
		}
	}
	return s.RuntimeService.CreateContainer(ctx, sandbox, config, of)
}

// emptyDir makes the directory of a volume, for everybody in the pod. What is not the volume's own directory is an
// error: the runtime follows what a container has put into one, as root on the host.
func emptyDir(volumes, path string) error {
	rel, err := filepath.Rel(volumes, path)
	parts := strings.Split(rel, "/")
	if err != nil || filepath.Clean(path) != path || len(parts) != 3 || !filepath.IsLocal(rel) || parts[1] != layout.EmptyDir {
		return fmt.Errorf("create an emptyDir: %s is not an emptyDir's directory", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create an emptyDir: %w", err)
	}
	err = os.Mkdir(path, 0o755)
	if err == nil {
		err = os.Chmod(path, 0o777) // whatever the umask
	} else if errors.Is(err, os.ErrExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("create an emptyDir: %w", err)
	}
	for dir := path; dir != filepath.Clean(volumes); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			return errors.Join(fmt.Errorf("create an emptyDir: %s must be a directory", dir), err)
		}
	}
	return nil
}

// ListPodSandboxStats tells what pods use, by their containers' figures where a runtime has none of pods: containerd
// has them only of pods in a cgroup that a kubelet has made.
func (s *service) ListPodSandboxStats(
	ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter,
) ([]*runtimeapi.PodSandboxStats, error) {
	list, err := s.RuntimeService.ListPodSandboxStats(ctx, filter)
	if err == nil {
		return list, nil
	}
	containers, other := s.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{
		PodSandboxId: filter.GetId(), LabelSelector: filter.GetLabelSelector(),
	})
	if other != nil {
		return nil, errors.Join(err, other)
	}
	return sum(containers), nil
}

// withoutEvents is how long a runtime's lists are asked for that has events, and could not be asked for them.
const withoutEvents = 30 * time.Second

// GetContainerEvents tells of what the runtime tells, or, of one that tells nothing, of what its lists say. One that
// does not answer has its lists asked for until it does: no pod is given up for it.
func (s *service) GetContainerEvents(
	ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	begun := false
	err := s.RuntimeService.GetContainerEvents(ctx, events, func(c runtimeapi.RuntimeService_GetContainerEventsClient) {
		begun = true
		established(c)
	})
	switch {
	case status.Code(err) == codes.Unimplemented:
	case begun || ctx.Err() != nil:
		return err
	default:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, withoutEvents)
		defer cancel()
	}
	return s.relist.follow(ctx, events, established)
}
