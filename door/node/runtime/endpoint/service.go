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

// service adds features of the engine to a runtime.
type service struct {
	internalapi.RuntimeService
	volumes string
	relist  relist
}

// CreateContainer first creates the directories of the pod's emptyDirs. The engine has these in the guest.
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

// emptyDir creates the directory of a volume with access for all users of the pod. Any other path is an error, because
// the runtime follows links that a container may have created, as root on the host.
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
		err = os.Chmod(path, 0o777) // independent of the umask
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

// ListPodSandboxStats returns the usage of pods. If the runtime has no statistics of pods, it adds up those of their
// containers. containerd has them only for pods in a cgroup of a kubelet.
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

// withoutEvents is how long lists replace the events of a runtime after a failed subscription.
const withoutEvents = 30 * time.Second

// GetContainerEvents sends the runtime's events. For a runtime without events it derives them from lists. If a
// subscription fails, it uses lists for a while, so that no pod fails because of it.
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
	return s.relist.run(ctx, events, established)
}
