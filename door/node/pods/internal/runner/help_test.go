package runner

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/internal/test/testcri"
	"github.com/bulkhead-project/bulkhead/volume"
)

// errPassing is a temporary error.
var errPassing = errors.New("a moment's fault")

// flaky is a runtime that fails the calls in fails.
type flaky struct {
	*testcri.Runtime

	mu     sync.Mutex
	fails  map[string]int // how often calls still fail, by name
	failed map[string]int
	// handlers are the runtime handlers of the created sandboxes.
	handlers []string
	absent   bool // images are missing before they are pulled
	noIP     bool // sandboxes have no address
	// sizes are the resizes of sandboxes, in milliprocessors. If most is above 0, larger sizes are refused permanently.
	sizes []int64
	most  int64
}

func (f *flaky) fault(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails[call] == 0 {
		return nil
	}
	f.fails[call]--
	f.failed[call]++
	return errPassing
}

func (f *flaky) RunPodSandbox(ctx context.Context, c *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if err := f.fault("RunPodSandbox"); err != nil {
		return "", err
	}
	f.mu.Lock()
	f.handlers = append(f.handlers, handler)
	f.mu.Unlock()
	return f.Runtime.RunPodSandbox(ctx, c, handler)
}

func (f *flaky) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := f.fault("PodSandboxStatus"); err != nil {
		return nil, err
	}
	got, err := f.Runtime.PodSandboxStatus(ctx, id, verbose)
	if f.noIP && err == nil {
		got.Status.Network = nil
	}
	return got, err
}

func (f *flaky) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if err := f.fault("ListPodSandbox"); err != nil {
		return nil, err
	}
	return f.Runtime.ListPodSandbox(ctx, filter)
}

func (f *flaky) StopPodSandbox(ctx context.Context, id string) error {
	return errors.Join(f.fault("StopPodSandbox"), f.Runtime.StopPodSandbox(ctx, id))
}

func (f *flaky) RemovePodSandbox(ctx context.Context, id string) error {
	if err := f.fault("RemovePodSandbox"); err != nil {
		return err
	}
	return f.Runtime.RemovePodSandbox(ctx, id)
}

func (f *flaky) CreateContainer(
	ctx context.Context, sandbox string, c *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig,
) (string, error) {
	if err := f.fault("CreateContainer"); err != nil {
		return "", err
	}
	return f.Runtime.CreateContainer(ctx, sandbox, c, s)
}

func (f *flaky) StartContainer(ctx context.Context, id string) error {
	if err := f.fault("StartContainer"); err != nil {
		return err
	}
	return f.Runtime.StartContainer(ctx, id)
}

func (f *flaky) StopContainer(ctx context.Context, id string, grace int64) error {
	if err := f.fault("StopContainer"); err != nil {
		return err
	}
	return f.Runtime.StopContainer(ctx, id, grace)
}

func (f *flaky) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if err := f.fault("ListContainers"); err != nil {
		return nil, err
	}
	return f.Runtime.ListContainers(ctx, filter)
}

func (f *flaky) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	if err := f.fault("ContainerStatus"); err != nil {
		return nil, err
	}
	return f.Runtime.ContainerStatus(ctx, id, verbose)
}

func (f *flaky) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	if err := f.fault("ImageStatus"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.absent {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return f.Runtime.ImageStatus(ctx, image, verbose)
}

func (f *flaky) PullImage(
	context.Context, *runtimeapi.ImageSpec, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig,
) (string, error) {
	if err := f.fault("PullImage"); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.absent = false
	return "here", nil
}

func (f *flaky) UpdatePodSandboxResources(
	_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if err := f.fault("UpdatePodSandboxResources"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	milli := r.GetResources().GetCpuQuota() / 100
	f.sizes = append(f.sizes, milli)
	if f.most > 0 && milli > f.most {
		return nil, status.Errorf(codes.ResourceExhausted, "%d is more than %d", milli, f.most)
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// nothing implements Objects for pods without references.
type nothing struct{ volume.Objects }

func (n nothing) Of(*corev1.Pod) (volume.Objects, func()) { return n, func() {} }
func (nothing) Known(*corev1.Pod) bool                    { return true }
func (nothing) Refer(*corev1.Pod)                         {}
func (nothing) Forget(types.UID)                          {}
func (nothing) Changed() <-chan struct{}                  { return nil }

// world is a directory and a runtime for successive Runners.
type world struct {
	t       *testing.T
	dir     string
	runtime *flaky
	// resources is the Runners' Options.Resources.
	resources Resources
	watch     Watch
	changes   atomic.Int64 // number of calls of Options.Changed
	there     types.UID    // the pod that the API server has, or ""
	// conditions are that pod's conditions in the API server.
	conditions []corev1.PodCondition
	// claims is the Runners' Options.Claims.
	claims func(*corev1.Pod, string) volume.Claims
	use    func(types.UID, string) (usage.Volume, bool)
	absent func(types.UID, string) bool
	usages func(context.Context) ([]usage.Pod, error)
	// handler is the Runners' Options.Handler.
	handler func(context.Context, types.UID) (string, error)
	*Runner
}

func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: t.TempDir(), runtime: &flaky{Runtime: testcri.New(0), fails: map[string]int{}, failed: map[string]int{}}}
		w.open()
		defer func() { w.Close() }()
		test(t, w)
	})
}

// refused is a dialer for ports without a listener.
func refused(context.Context, string, int) (net.Conn, error) { return nil, syscall.ECONNREFUSED }

// open opens the next Runner.
func (w *world) open() {
	w.t.Helper()
	var err error
	w.Runner, err = Open(w.t.Context(), Options{
		Dir: filepath.Join(w.dir, "pods"), VolumeDir: filepath.Join(w.dir, "volumes"),
		Backend: runtime.Backend{Runtime: w.runtime, Images: w.runtime, Dial: refused, Usages: w.usages},
		Objects: nothing{}, Node: "node", HostIP: "192.0.2.1", Pod: w.known, Changed: w.countChange,
		Resources: w.resources, Claims: w.claims, VolumeUse: w.use, VolumeAbsent: w.absent, Handler: w.handler, Watch: w.watch,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// countChange counts a change.
func (w *world) countChange(types.UID, bool) {
	w.changes.Add(1)
}

// known returns a pod as the API server has it.
func (w *world) known(uid types.UID) *corev1.Pod {
	if w.there == "" || uid != w.there {
		return nil
	}
	p := spec("p", uid)
	p.Status.Conditions = w.conditions
	return p
}

// spec returns a pod with one container.
func spec(name string, uid types.UID) *corev1.Pod {
	grace := int64(5)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid, CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, NodeName: "node",
			Containers: []corev1.Container{{Name: "c", Image: "here:1", ImagePullPolicy: corev1.PullIfNotPresent}},
		},
	}
}

// ready waits for a pod to be ready, and reports whether it is.
func (w *world) ready(uid types.UID, within time.Duration) bool {
	w.t.Helper()
	for range within / time.Second {
		time.Sleep(time.Second)
		synctest.Wait()
		status, _ := w.Status(uid)
		for _, c := range status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

// left returns the runtime's sandboxes.
func (w *world) left() []*runtimeapi.PodSandbox {
	w.t.Helper()
	list, err := w.runtime.Runtime.ListPodSandbox(w.t.Context(), nil)
	if err != nil {
		w.t.Error(err)
	}
	return list
}
