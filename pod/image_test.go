package pod

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/internal/testpod"
)

// TestImagePolicies: what is pulled, and what is told of it in the kubelet's words.
func TestImagePolicies(t *testing.T) {
	pulled := func(image string) string {
		return fmt.Sprintf("Successfully pulled image %q in 0s (0s including waiting). Image size: 0 bytes.", image)
	}
	tests := []struct {
		image  string
		policy corev1.PullPolicy
		pulls  []string
		state  string
		told   string
	}{
		{image: "here:1", policy: "IfNotPresent", state: "running", told: `Container image "here:1" already present on machine`},
		{image: "here:1", policy: "Never", state: "running", told: `Container image "here:1" already present on machine`},
		{image: "here:1", policy: "Always", pulls: []string{"PullImage here:1"}, state: "running", told: pulled("here:1")},
		{image: "away:1", policy: "IfNotPresent", pulls: []string{"PullImage away:1"}, state: "running", told: pulled("away:1")},
		{image: "away", policy: "Always", pulls: []string{"PullImage away:latest"}, state: "running", told: pulled("away")},
		{image: "reg:5000/away@sha256:00", policy: "IfNotPresent", pulls: []string{"PullImage reg:5000/away@sha256:00"}, state: "running",
			told: pulled("reg:5000/away@sha256:00")},
		{image: "away:1", policy: "Never", state: "waiting ErrImageNeverPull",
			told: `Container image "away:1" is not present with pull policy of Never`},
	}
	for _, test := range tests {
		t.Run(test.image+" "+string(test.policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				pod := testpod.New("Always", "main")
				pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = test.image, test.policy
				s := supervise(t, fake, pod)
				c := s.Status().ContainerStatuses[0]
				if got := state(c); got != test.state {
					t.Errorf("%s, want %s", got, test.state)
				}
				if c.State.Waiting != nil && c.State.Waiting.Message != test.told {
					t.Errorf("waits: %s", c.State.Waiting.Message)
				}
				if diff := cmp.Diff([]string{"main: " + test.told}, append(s.told("Pulled"), s.told("Failed")...)); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(test.pulls, fake.called("PullImage")); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestPullsBackOffAndKeepTheirCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		gone := errors.New("registry is gone")
		fake.pulls["away:1"] = []error{gone, gone, gone}
		pod := testpod.New("Always", "main", "other")
		pod.Spec.Containers[0].Image = "away:1"
		s := supervise(t, fake, pod)
		waiting := s.Status().ContainerStatuses[0].State.Waiting
		if waiting == nil || waiting.Message == "" || waiting.Reason != images.ReasonPull && waiting.Reason != images.ReasonBackOff {
			t.Fatalf("waiting %+v", waiting)
		}
		// The other container does not wait for it.
		if got := state(s.Status().ContainerStatuses[1]); got != "running" {
			t.Errorf("the other container is %s", got)
		}
		if status := s.after(time.Second); status.Phase != corev1.PodPending || state(status.ContainerStatuses[0]) != "waiting ImagePullBackOff" {
			t.Errorf("phase %s, %s", status.Phase, state(status.ContainerStatuses[0]))
		}
		s.after(65 * time.Second) // 10 + 20 s, and then 40
		if got := len(fake.called("PullImage")); got != 3 {
			t.Errorf("%d pulls", got)
		}
		if status := s.after(10 * time.Second); state(status.ContainerStatuses[0]) != "running" {
			t.Errorf("%s", state(status.ContainerStatuses[0]))
		}
	})
}

// TestImageIsPulledAgain that somebody has removed between its pull and its use.
func TestImageIsPulledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["first"] = []life{{lasts: time.Minute}}
		pod := testpod.New("Always", "main")
		pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "here:1", ImagePullPolicy: "IfNotPresent"}}
		pod.Spec.Containers[0].Image = "away:1"
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: "away:2", PullPolicy: "IfNotPresent"},
		}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		s := supervise(t, fake, pod)
		fake.mu.Lock()
		fake.images = map[string]*runtimeapi.Image{"here:1": fake.images["here:1"]}
		fake.errors["CreateContainer"] = []error{status.Error(codes.NotFound, "no such image")}
		fake.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := state(s.Status().ContainerStatuses[0]); got != "running" {
			t.Error(got)
		}
		want := []string{"PullImage away:1", "PullImage away:1", "PullImage away:2", "PullImage away:2"}
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(fake.called("PullImage")))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestImagesArePulledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Always", "a", "b")
		for i, image := range []string{"slow:1", "slow:2"} {
			pod.Spec.Containers[i].Image = image
			fake.hold[image] = make(chan struct{})
		}
		s := supervise(t, fake, pod)
		if got := fake.called("PullImage"); len(got) != 2 {
			t.Errorf("pulls under way: %v", got)
		}
		if got := fake.called("RunPodSandbox"); len(got) != 1 {
			t.Errorf("the sandbox waits for the images: %v", got)
		}
		// A stop does not wait for them.
		if err := s.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestAlwaysPullsBeforeEachStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["main"] = []life{{lasts: time.Second}, {}}
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		supervise(t, fake, pod).after(5 * time.Second)
		if got := len(fake.called("PullImage")); got != 2 {
			t.Errorf("%d pulls for two starts", got)
		}
	})
}
