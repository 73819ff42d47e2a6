package cri

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// service is a Service with its engine and the engine's store.
type service struct {
	*Service
	e     *engine.Engine
	o     engine.Options
	store *store.Store
	// groups are the instance's cgroups on the host, if they are real.
	groups *hostcgroup.Host
}

// Close closes the engine.
func (s *service) Close(ctx context.Context) error { return s.e.Close(ctx) }

// serve opens an engine, which is closed with the test, and serves it.
func serve(t testing.TB, o engine.Options) *service {
	t.Helper()
	e := enginetest.Open(t, o)
	st, err := store.Open(o.Roots, o.Instance)
	if err != nil {
		t.Fatal(err)
	}
	return &service{
		Service: New(e, Options{Roots: o.Roots, Logger: o.Logger, Volumes: layout.Dirs{Kubelet: "/var/lib/kubelet"}}),
		e:       e,
		o:       o,
		store:   st,
	}
}

// fakeService serves an engine in w.
func fakeService(t testing.TB, w *enginetest.World, o engine.Options) *service {
	t.Helper()
	return serve(t, w.In(o))
}

func testOptions(t testing.TB, roots dirs.Roots) engine.Options { return enginetest.Options(t, roots) }

// realService serves an engine with real VMs, clones or forks, that has the test image. A second engine can use the
// same options.
func realService(t testing.TB, forks bool) (*service, engine.Options) {
	t.Helper()
	o := enginetest.Real(t, forks)
	return serveInGroups(t, o), o
}

// serveInGroups serves an engine with cgroups that the test can read.
func serveInGroups(t testing.TB, o engine.Options) *service {
	t.Helper()
	host := hostcgroup.Find(filepath.Base(filepath.Dir(o.Roots.Data)))
	o.Groups = group.New(host, o.Roots.Instance(o.Instance), o.Logger)
	s := serve(t, o)
	s.groups = host
	return s
}

// startContainer creates and starts a container in a pod.
func startContainer(
	ctx context.Context, t testing.TB, s *service, pod string, c *runtimeapi.ContainerConfig, config *runtimeapi.PodSandboxConfig,
) string {
	t.Helper()
	id, err := s.CreateContainer(ctx, pod, c, config)
	if err == nil {
		err = s.StartContainer(ctx, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func podConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Labels:   map[string]string{"app": name},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}
}

func containerConfig(name string, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: enginetest.Busybox},
		Command:  command, LogPath: name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}, // like a kubelet
		}},
	}
}

// PodFacts returns the facts of a pod's VM.
func (s *service) PodFacts(ctx context.Context, id string) (*engine.Facts, error) {
	return s.e.Facts(ctx, id)
}

// shim returns a pod's shim in w.
func (s *service) shim(w *enginetest.World, pod string) *enginetest.Shim {
	return w.Shim(s.store.StateDir(pod))
}

func subscribe(t *testing.T, s *service) chan *runtimeapi.ContainerEventResponse {
	t.Helper()
	events, ready := make(chan *runtimeapi.ContainerEventResponse, 16), make(chan struct{})
	go s.GetContainerEvents(t.Context(), events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(ready) })
	<-ready
	return events
}

func wait(t *testing.T, events chan *runtimeapi.ContainerEventResponse, id string, kind runtimeapi.ContainerEventType) {
	t.Helper()
	timeout := time.After(testdeadline.For(10 * time.Second))
	for {
		select {
		case e := <-events:
			if e.ContainerId == id && e.ContainerEventType == kind {
				return
			}
		case <-timeout:
			t.Fatalf("no event %v of %.12s", kind, id)
		}
	}
}

// warm keeps parents for pods of a size, so that later pods are forked.
func (s *service) warm(ctx context.Context, t *testing.T, memory int) {
	t.Helper()
	if err := s.e.Kinds().Warm(ctx, kinds.Request{MemoryMiB: memory}); err != nil {
		t.Fatal(err)
	}
}
