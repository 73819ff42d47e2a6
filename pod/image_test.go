package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/images"
)

// TestImagePolicies: each policy pulls and reports like the kubelet.
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
				if diff := cmp.Diff([]string{"main: " + test.told}, append(s.messages("Pulled"), s.messages("Failed")...)); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(test.pulls, fake.called("PullImage")); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestPullsBackOffAndKeepTheirCause: a container shows why its image cannot be pulled for as long as it waits, and does
// not delay other containers.
func TestPullsBackOffAndKeepTheirCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		gone := errors.New("registry is gone")
		fake.pulls["away:1"] = []error{gone, gone, gone}
		pod := testpod.New("Always", "main", "other")
		pod.Spec.Containers[0].Image = "away:1"
		s := supervise(t, fake, pod)
		waiting := s.Status().ContainerStatuses[0].State.Waiting
		if waiting == nil || waiting.Reason != images.ReasonPull && waiting.Reason != images.ReasonBackOff ||
			!strings.Contains(waiting.Message, "registry is gone") {
			t.Fatalf("waiting %+v", waiting)
		}
		// The other container does not wait for it.
		if got := state(s.Status().ContainerStatuses[1]); got != "running" {
			t.Errorf("the other container is %s", got)
		}
		if status := s.after(time.Second); status.Phase != corev1.PodPending || state(status.ContainerStatuses[0]) != "waiting ImagePullBackOff" {
			t.Errorf("phase %s, %s", status.Phase, state(status.ContainerStatuses[0]))
		}
		const pause = `Back-off pulling image "away:1": `
		waiting = s.Status().ContainerStatuses[0].State.Waiting
		if !strings.HasPrefix(waiting.Message, pause) || !strings.Contains(waiting.Message, "registry is gone") {
			t.Errorf("waiting in a pause: %q", waiting.Message)
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

// TestImageIsPulledAgain: an image that was removed between its pull and its use is pulled again.
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

// five supervises a pod of five containers with different images. Their pulls fail together fail times.
func five(t *testing.T, fake *fakeCRI, fail int) (s *supervised, together func()) {
	t.Helper()
	pod, gate := testpod.New("Always", "a", "b", "c", "d", "e"), make(chan struct{})
	for i := range pod.Spec.Containers {
		image := fmt.Sprint("away:", i)
		pod.Spec.Containers[i].Image, fake.hold[image] = image, gate
		fake.pulls[image] = slices.Repeat([]error{errors.New("registry is gone")}, fail)
	}
	s = supervise(t, fake, pod)
	if got := len(fake.called("PullImage")); got != 5 {
		t.Errorf("%d pulls are under way", got)
	}
	return s, func() { close(gate) }
}

// TestAllPullsFailAtOnce: a pod with five pulls that fail at the same moment, and again, runs when they succeed.
func TestAllPullsFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		s, together := five(t, fake, 2)
		together()
		for _, c := range s.after(0).ContainerStatuses {
			if c.State.Waiting == nil || !strings.Contains(c.State.Waiting.Message, "registry is gone") {
				t.Errorf("%s: %+v", c.Name, c.State)
			}
		}
		status := s.after(35 * time.Second) // 10 and 20 s
		for _, c := range status.ContainerStatuses {
			if state(c) != "running" {
				t.Errorf("%s is %s", c.Name, state(c))
			}
		}
		if n := len(fake.called("PullImage")); n != 15 || status.Phase != corev1.PodRunning {
			t.Errorf("%s after %d pulls", status.Phase, n)
		}
	})
}

// TestStopWhileAllPullsFail: a stop ends a pod with failing pulls immediately: between failures, during five
// simultaneous failures, and before them, when the stop makes them fail.
func TestStopWhileAllPullsFail(t *testing.T) {
	for name, before := range map[string]func(together func()){
		"between": func(together func()) {
			together()
			time.Sleep(time.Minute)
		},
		"meanwhile": func(together func()) { together() },
		"before":    func(func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, together := five(t, newFake(), 100)
				before(together)
				began := time.Now()
				if err := s.Stop(t.Context(), 30*time.Second); err != nil {
					t.Error(err)
				}
				if err := s.end(); err != nil || time.Since(began) > time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if phase := s.Status().Phase; phase != corev1.PodFailed {
					t.Errorf("it is %s", phase)
				}
			})
		})
	}
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

// TestImageArrives: a pod with a failed pull gets its image as soon as another pod has pulled it. A pod with the policy
// Always, or with another image, keeps waiting.
func TestImageArrives(t *testing.T) {
	for _, tt := range []struct {
		policy corev1.PullPolicy
		image  string
		want   string
		pulls  int
	}{
		{"IfNotPresent", "away:1", "running", 3},
		{"Never", "away:1", "running", 2},
		{"Always", "away:1", "waiting ImagePullBackOff", 3},
		{"IfNotPresent", "other:1", "waiting ImagePullBackOff", 3},
		{"Never", "other:1", "waiting ErrImageNeverPull", 2},
	} {
		t.Run(string(tt.policy)+" "+tt.image, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				gone := errors.New("registry is gone")
				fake.pulls["away:1"], fake.pulls["other:1"] = []error{gone}, []error{gone}
				if tt.image == "away:1" && tt.policy != corev1.PullNever {
					fake.pulls["away:1"] = []error{gone, gone}
				}
				shared := &images.Arrivals{ImageManagerService: fake}
				of := func(name, image string, policy corev1.PullPolicy) *supervised {
					pod := testpod.New("Always", "main")
					pod.Name, pod.UID = name, types.UID(name)
					pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, policy
					return supervise(t, fake, pod, func(o *Options) { o.Images, o.Arrival = shared, shared.Wait })
				}
				other := of("first", "away:1", "IfNotPresent")
				other.after(5 * time.Second)
				waits := of("waits", tt.image, tt.policy)
				if got := state(waits.after(0).ContainerStatuses[0]); !strings.HasPrefix(got, "waiting ") {
					t.Fatalf("container is %s", got)
				}
				if got := state(other.after(6 * time.Second).ContainerStatuses[0]); got != "running" {
					t.Fatalf("the pod that pulls is %s", got)
				}
				if got := state(waits.Status().ContainerStatuses[0]); got != tt.want {
					t.Errorf("container is %s, want %s", got, tt.want)
				}
				if got := len(fake.called("PullImage")); got != tt.pulls {
					t.Errorf("%d pulls", got)
				}
			})
		})
	}
}
