package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
)

// listing is a runtime with these objects.
type listing struct {
	internalapi.RuntimeService
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	statuses   map[string]error // of containers; nil for an existing one
	selector   map[string]string
	asked      []string
	err        error
}

func (l *listing) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	l.selector = f.LabelSelector
	return l.sandboxes, l.err
}

func (l *listing) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	l.selector = f.LabelSelector
	return l.containers, l.err
}

func (l *listing) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	l.asked = append(l.asked, id)
	if err := l.statuses[id]; err != nil {
		return nil, err
	}
	var created int64
	fmt.Sscan(strings.TrimLeft(id, "abc"), &created)
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, CreatedAt: created}}, nil
}

func TestSandboxes(t *testing.T) {
	sandbox := func(id string, attempt uint32, created int64) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Id: id, CreatedAt: created, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}}
	}
	l := &listing{sandboxes: []*runtimeapi.PodSandbox{sandbox("c", 1, 9), sandbox("a", 2, 1), sandbox("b", 2, 0), sandbox("d", 1, 8)}}
	list, err := Sandboxes(t.Context(), l, "u-1")
	ids := ""
	for _, s := range list {
		ids += s.Id
	}
	if err != nil || ids != "abcd" || l.selector[config.LabelUID] != "u-1" || len(l.selector) != 1 {
		t.Errorf("%s, %v, by %v", ids, err, l.selector)
	}
	l.err = errors.New("refused")
	if _, err := Sandboxes(t.Context(), l, "u-1"); !errors.Is(err, l.err) {
		t.Errorf("%v", err)
	}
	if _, err := Containers(t.Context(), l, "u-2"); !errors.Is(err, l.err) || l.selector[config.LabelUID] != "u-2" {
		t.Errorf("%v, by %v", err, l.selector)
	}
}

func TestOf(t *testing.T) {
	container := func(id, name, restarts string, attempt uint32) *runtimeapi.Container {
		c := &runtimeapi.Container{Id: id, PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Attempt: attempt}}
		c.Labels = map[string]string{config.LabelContainer: name}
		if restarts != "" {
			c.Annotations = map[string]string{config.AnnotationRestarts: restarts}
		}
		return c
	}
	l := &listing{statuses: map[string]error{"gone": status.Error(codes.NotFound, "gone")}}
	listed := []*runtimeapi.Container{
		container("a1", "main", "1", 9), container("b2", "main", "", 2), container("c3", "main", "oops", 2),
		container("other", "side", "7", 7), container("gone", "main", "8", 8), container("known", "main", "0", 0),
	}
	known := map[string]*runtimeapi.ContainerStatus{"known": {Id: "known", State: runtimeapi.ContainerState_CONTAINER_EXITED}}
	got, err := Of(t.Context(), l, listed, "main", known)
	text := ""
	for _, i := range got {
		text += fmt.Sprintf("%s/%d/%s ", i.ID(), i.Restarts, i.Sandbox)
	}
	if err != nil || text != "c3/2/s b2/2/s a1/1/s known/0/s " {
		t.Errorf("%s, %v", text, err)
	}
	if asked := strings.Join(l.asked, " "); asked != "a1 b2 c3 gone" {
		t.Errorf("asked for %s", asked)
	}
	l.statuses["a1"] = errors.New("refused")
	if _, err := Of(t.Context(), l, listed, "main", known); !errors.Is(err, l.statuses["a1"]) || !strings.Contains(err.Error(), "main") {
		t.Errorf("%v", err)
	}
}

func TestInstance(t *testing.T) {
	var none *Instance
	if none.ID() != "" || none.Exited() || none.Created() {
		t.Error("a nil instance is not empty")
	}
	i := &Instance{Status: &runtimeapi.ContainerStatus{Id: "x", StartedAt: 5, State: runtimeapi.ContainerState_CONTAINER_EXITED}}
	if i.ID() != "x" || !i.Exited() || i.Created() || !Time(5).Equal(time.Unix(0, 5)) || !Time(0).IsZero() {
		t.Errorf("%+v", i)
	}
	i.Status.State = runtimeapi.ContainerState_CONTAINER_CREATED
	if i.Exited() || !i.Created() {
		t.Errorf("%+v", i)
	}
	if Gone(nil) || Gone(errors.New("x")) || !Gone(status.Error(codes.NotFound, "x")) {
		t.Error("Gone")
	}
}
