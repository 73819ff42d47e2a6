package pod

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// TestUpdateTellsMetadata: volumes show changed labels and annotations, without the engine's own. An update without a
// change does not wake the pod.
func TestUpdateTellsMetadata(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	synctest.Test(t, func(t *testing.T) {
		p := testpod.New("Always", "main")
		p.Labels = map[string]string{"a": "1"}
		var items []corev1.DownwardAPIVolumeFile
		for _, name := range []string{"labels", "annotations"} {
			items = append(items, corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata." + name}})
		}
		source := corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}}
		s := supervise(t, newFake(), p, func(o *Options) { o.VolumeDir = dir })
		next := p.DeepCopy()
		if s.Update(next, nil) {
			t.Error("the same is a change")
		}
		next.Labels = map[string]string{"b": "2"}
		next.Annotations = map[string]string{"note": "new", "io.bulkhead.internal/template": "off"}
		if !s.Update(next, nil) || s.Update(next, nil) {
			t.Error("a change is not reported exactly once")
		}
		status := s.after(0)
		for name, want := range map[string]string{"labels": `b="2"`, "annotations": `note="new"`} {
			if text, err := os.ReadFile(filepath.Join(dir, "kubernetes.io~downward-api/v", name)); string(text) != want {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		if c := status.ContainerStatuses[0]; c.RestartCount != 0 {
			t.Errorf("container: %+v", c)
		}
	})
}

// TestUpdateOfImages: a container with a new image is restarted, with any policy of the pod. Other containers, and
// ended ones, are left alone.
func TestUpdateOfImages(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{"Always", "Never"} {
		synctest.Test(t, func(t *testing.T) {
			fake, p := newFake(), withInits(testpod.New(policy, "a", "b"), "i")
			fake.scripts["i"] = []life{{lasts: time.Second}}
			s := supervise(t, fake, p)
			s.after(2 * time.Second)
			next := p.DeepCopy()
			next.Generation, next.Spec.Containers[0].Image, next.Spec.InitContainers[0].Image = 7, "other:2", "other:3"
			s.Update(next, nil)
			status := s.after(time.Second)
			a, b := status.ContainerStatuses[0], status.ContainerStatuses[1]
			if a.Image != "other:2" || a.RestartCount != 1 || state(a) != "running" || b.RestartCount != 0 || state(b) != "running" {
				t.Errorf("%s: %s %+v and %+v", policy, state(a), a, b)
			}
			if status.ObservedGeneration != 7 || !slices.Contains(fake.called("PullImage"), "PullImage other:2") {
				t.Errorf("%s: generation %d, %v", policy, status.ObservedGeneration, fake.called("PullImage"))
			}
			if !slices.ContainsFunc(s.events, func(e Event) bool { return e.Message == "Container a definition changed, will be restarted" }) {
				t.Errorf("%s: events %v", policy, s.events)
			}
			if n := len(fake.called("StartContainer")); n != 4 {
				t.Errorf("%s: %d starts", policy, n)
			}
		})
	}
}

// TestUpdateOfAnImageThatCannotBeHad: a pod that waits for an image runs as soon as it gets another one.
func TestUpdateOfAnImageThatCannotBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, p := newFake(), testpod.New("Always", "a")
		p.Spec.Containers[0].Image = "wrong:1"
		for range 50 {
			fake.pulls["wrong:1"] = append(fake.pulls["wrong:1"], errors.New("no such image"))
		}
		s := supervise(t, fake, p)
		if got := state(s.after(5 * time.Minute).ContainerStatuses[0]); !strings.Contains(got, "ImagePull") {
			t.Fatal(got)
		}
		next := p.DeepCopy()
		next.Spec.Containers[0].Image = "here:1"
		s.Update(next, nil)
		if got := state(s.after(0).ContainerStatuses[0]); got != "running" {
			t.Error(got)
		}
	})
}

// TestUpdateAcrossAnEngine: a container with an outdated image is restarted when its pod is adopted.
func TestUpdateAcrossAnEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, p := newFake(), testpod.New("Always", "a")
		s := supervise(t, fake, p)
		s.cancel()
		synctest.Wait()
		next := p.DeepCopy()
		next.Spec.Containers[0].Image = "other:2"
		status := supervise(t, fake, next).after(time.Second)
		if c := status.ContainerStatuses[0]; c.RestartCount != 1 || state(c) != "running" {
			t.Errorf("%+v", c)
		}
	})
}

// TestUpdateOfResources: new resources are applied like a resize, unless they are refused or break the rules. Refused
// ones are applied when the refusal ends.
func TestUpdateOfResources(t *testing.T) {
	for name, test := range map[string]struct {
		to      corev1.ResourceRequirements
		refused *podstatus.Condition
		state   string
	}{
		"granted": {to: limited("cpu=1", "memory=128Mi"), state: "128Mi, 128Mi"},
		"deferred": {to: limited("cpu=1", "memory=128Mi"), refused: &podstatus.Condition{Status: "True", Reason: "Deferred", Message: "full"},
			state: "PodResizePending Deferred, 64Mi, 64Mi"},
		"a limit that goes": {to: limited("memory=128Mi"), state: "PodResizePending Infeasible, 64Mi, 64Mi"},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake, p := newFake(), testpod.New("Always", "a")
			p.Spec.Containers[0].Resources = limited("cpu=500m", "memory=64Mi")
			s := supervise(t, fake, p)
			next := p.DeepCopy()
			next.Generation, next.Spec.Containers[0].Resources = 3, test.to
			s.Update(next, test.refused)
			if status := s.after(time.Second); resizeState(status) != test.state || status.ObservedGeneration != 3 {
				t.Errorf("%s: %q at generation %d, want %q", name, resizeState(status), status.ObservedGeneration, test.state)
			}
			if calls := len(fake.called("Resize")); (calls > 0) != (name == "granted") {
				t.Errorf("%s: %d calls", name, calls)
			}
			if test.refused == nil {
				return
			}
			s.Update(next, nil)
			if status := s.after(time.Second); resizeState(status) != "128Mi, 128Mi" {
				t.Errorf("%s: then %q", name, resizeState(status))
			}
		})
	}
}
