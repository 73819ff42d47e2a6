package pod

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/broadcast"
	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/volume"
)

var errUnbound = errors.New("PVC is not bound")

// fakeClaims fails as configured.
type fakeClaims struct {
	fake    *fakeCRI
	changed broadcast.Broadcast

	mu       sync.Mutex
	mount    []error // errors of the next calls
	unmount  []error
	hang     bool // until the context ends
	places   map[string]volume.Place
	released int
}

func (c *fakeClaims) Mount(ctx context.Context, _ *corev1.Pod) (map[string]volume.Place, error) {
	_ = c.fake.call("Mount", "")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if len(c.mount) > 0 {
		err := c.mount[0]
		c.mount = c.mount[1:]
		return nil, err
	}
	c.places = map[string]volume.Place{"data": {Path: "/srv/data", ReadOnly: true}}
	return c.places, nil
}

func (c *fakeClaims) Places() map[string]volume.Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.places == nil {
		return map[string]volume.Place{}
	}
	return c.places
}

func (c *fakeClaims) Changed() <-chan struct{} { return c.changed.Next() }

func (c *fakeClaims) Unmount(context.Context) error {
	_ = c.fake.call("Unmount", "")
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unmount) > 0 {
		err := c.unmount[0]
		c.unmount = c.unmount[1:]
		return err
	}
	return nil
}

func (c *fakeClaims) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released++
}

// moreCRI is a runtime that offers more than the CRI.
type moreCRI struct {
	*fakeCRI

	asked []runtimev1.PodOptions
}

func (m *moreCRI) RunPodSandboxWith(
	ctx context.Context, c *runtimeapi.PodSandboxConfig, handler string, o runtimev1.PodOptions,
) (string, error) {
	m.asked = append(m.asked, o)
	return m.RunPodSandbox(ctx, c, handler)
}

func (m *moreCRI) CreateContainerWith(
	ctx context.Context, id string, c *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig, _ runtimev1.ContainerOptions,
) (string, error) {
	return m.CreateContainer(ctx, id, c, s)
}

func (m *moreCRI) ExecSyncClipped(
	ctx context.Context, id string, cmd []string, timeout time.Duration, _ int,
) (stdout, stderr []byte, err error) {
	return m.ExecSync(ctx, id, cmd, timeout)
}

var _ runtimev1.Runtime = (*moreCRI)(nil)

// superviseClaims runs the pod of claiming.
func superviseClaims(t *testing.T, claims *fakeClaims) (*supervised, *moreCRI) {
	t.Helper()
	more := &moreCRI{fakeCRI: claims.fake}
	return supervise(t, claims.fake, claiming(), func(o *Options) { o.Runtime, o.Claims = more, claims }), more
}

func claiming() *corev1.Pod {
	pod := testpod.New("Always", "main")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return pod
}

// order returns the relevant calls without their subjects.
func (c *fakeClaims) order() (out []string) {
	for _, call := range c.fake.called("Mount", "Unmount", "RunPodSandbox", "StopPodSandbox") {
		out = append(out, strings.Fields(call)[0])
	}
	return out
}

// TestClaimsComeBeforeTheSandbox: claims are mounted before each sandbox. A failure is an event, and is retried after a
// delay or a change. They are unmounted when the last sandbox has stopped.
func TestClaimsComeBeforeTheSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		claims := &fakeClaims{fake: fake, mount: []error{errUnbound, errUnbound, errUnbound}}
		s, more := superviseClaims(t, claims)
		if got := state(s.Status().ContainerStatuses[0]); got != "waiting ContainerCreating" || len(fake.called("RunPodSandbox")) > 0 {
			t.Fatalf("%s, calls %v", got, claims.order())
		}
		s.after(600 * time.Millisecond)
		if n := len(fake.called("Mount")); n != 2 {
			t.Fatalf("tried %d times after a pause", n)
		}
		claims.changed.Notify()
		synctest.Wait()
		if n := len(fake.called("Mount")); n != 3 {
			t.Fatalf("tried %d times after a change", n)
		}
		if got := state(s.after(3 * time.Second).ContainerStatuses[0]); got != "running" {
			t.Fatal(got)
		}
		for _, container := range fake.containers {
			if m := container.config.GetMounts()[0]; !m.GetReadonly() {
				t.Errorf("not read-only: %v", m)
			}
		}
		fake.die(s.Sandbox(), false)
		if got := state(s.after(30 * time.Second).ContainerStatuses[0]); got != "running" {
			t.Fatal(got)
		}
		s.Stop(t.Context(), 0)
		if err := s.end(); err != nil {
			t.Error(err)
		}
		if !slices.Contains(s.messages("FailedMount"), ": "+errUnbound.Error()) {
			t.Errorf("events %v", s.events)
		}
		if len(more.asked) != 2 || more.asked[1].HostPaths["data"].Name != "/srv/data" {
			t.Errorf("asked for %+v", more.asked)
		}
		const begin, end = "Mount Mount Mount Mount RunPodSandbox StopPodSandbox Mount RunPodSandbox", "StopPodSandbox Unmount"
		if got := strings.Join(claims.order(), " "); !strings.HasPrefix(got, begin) || !strings.HasSuffix(got, end) {
			t.Error(got)
		}
	})
}

// TestClaimsAreLookedAtAgain: claims are checked before each sandbox, also after a failed creation.
func TestClaimsAreLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.errors = map[string][]error{"RunPodSandbox": {errUnbound, errUnbound}}
		claims := &fakeClaims{fake: fake}
		s, _ := superviseClaims(t, claims)
		if got := state(s.after(time.Minute).ContainerStatuses[0]); got != "running" {
			t.Fatal(got)
		}
		s.Stop(t.Context(), 0)
		if err := s.end(); err != nil {
			t.Error(err)
		}
		const begin = "Mount RunPodSandbox Mount RunPodSandbox Mount RunPodSandbox StopPodSandbox"
		if got := strings.Join(claims.order(), " "); !strings.HasPrefix(got, begin) {
			t.Error(got)
		}
	})
}

// TestClaimsThatStay: the pod's end does not wait for them. They are released for later, and Delete fails until they
// are unmounted.
func TestClaimsThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		claims := &fakeClaims{fake: fake, unmount: []error{errUnbound, errUnbound}}
		s, _ := superviseClaims(t, claims)
		s.Stop(t.Context(), 0)
		if err := s.end(); err != nil || claims.released != 1 {
			t.Errorf("%v, released %d times", err, claims.released)
		}
		if err := s.Delete(t.Context()); !errors.Is(err, errUnbound) {
			t.Errorf("removed: %v", err)
		}
		if err := s.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStopWhileClaimsHang: a stop cancels and undoes the attempt.
func TestStopWhileClaimsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		claims := &fakeClaims{fake: fake, hang: true}
		s, _ := superviseClaims(t, claims)
		began := time.Now()
		s.Stop(t.Context(), 0)
		if err := s.end(); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if got := strings.Join(claims.order(), " "); got != "Mount Unmount" || slices.Contains(s.reasons(), "FailedMount") {
			t.Errorf("%s, events %v", got, s.reasons())
		}
	})
}

// TestClaimsOfAnEarlierProcess: a restarted container gets the claims without another mount.
func TestClaimsOfAnEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		claims := &fakeClaims{fake: fake}
		fake.scripts["main"] = []life{{lasts: time.Minute, code: 1}, {}}
		first, _ := superviseClaims(t, claims)
		first.cancel()
		_ = first.end()
		claims.mount = []error{errUnbound}
		s, _ := superviseClaims(t, claims)
		if got := s.after(2 * time.Minute).ContainerStatuses[0]; state(got) != "running" || got.RestartCount != 1 {
			t.Error(got)
		}
		if n := len(fake.called("Mount")); n != 1 || len(fake.called("Unmount")) > 0 {
			t.Errorf("calls %v", claims.order())
		}
		for _, container := range fake.containers {
			if m := container.config.GetMounts()[0]; !m.GetReadonly() {
				t.Errorf("not read-only: %v", m)
			}
		}
		s.Stop(t.Context(), 0)
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}
