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
	"github.com/bulkhead-project/bulkhead/volume"
)

// reasons returns the reasons of the events so far.
func (s *supervised) reasons() (out []string) {
	for _, e := range s.events {
		out = append(out, e.Reason)
	}
	return out
}

// TestWhatWaitsForAnObjectStartsWhenItComes: without a delay.
func TestWhatWaitsForAnObjectStartsWhenItComes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	synctest.Test(t, func(t *testing.T) {
		fake, set := newFake(), &volume.Set{}
		pod := testpod.New("Always", "main")
		pod.Spec.Volumes = []corev1.Volume{testpod.ConfigVolume("v", "settings")}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "key",
		}}}}
		s := supervise(t, fake, pod, func(o *Options) { o.Objects, o.VolumeDir = set, dir })
		if got := state(s.Status().ContainerStatuses[0]); got != "waiting ContainerCreating" ||
			!strings.Contains(strings.Join(s.reasons(), " "), "FailedMount") {
			t.Fatalf("%s, events %v", got, s.reasons())
		}
		if err := set.Apply([]*corev1.ConfigMap{testpod.ConfigMap("settings", "a", "1")}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c := s.Status().ContainerStatuses[0]
		if got := state(c); got != "waiting CreateContainerConfigError" || c.State.Waiting.Message != `secret "keys" not found` {
			t.Fatalf("%s: %+v", got, c.State.Waiting)
		}
		if got := s.messages("MandatorySecretNotFound"); !slices.Equal(got, []string{`main: Secret "keys" not found`}) {
			t.Errorf("events %q of all %v", got, s.reasons())
		}
		if err := set.Apply(nil, []*corev1.Secret{testpod.Secret("keys", "key", "hush")}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := state(s.Status().ContainerStatuses[0]); got != "running" {
			t.Fatalf("%s, events %v", got, s.reasons())
		}
		file := filepath.Join(dir, "kubernetes.io~configmap/v/a")
		if text, err := os.ReadFile(file); string(text) != "1" {
			t.Errorf("%q, %v", text, err)
		}
		// Another version, and then one without a key.
		if err := set.Apply([]*corev1.ConfigMap{testpod.ConfigMap("settings", "a", "2")}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if text, err := os.ReadFile(file); string(text) != "2" {
			t.Errorf("%q, %v", text, err)
		}
		if n := len(fake.called("StartContainer")); n != 1 {
			t.Errorf("%d starts", n)
		}
		s.Stop(t.Context(), 0)
		if err := s.end(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("volumes remain: %v", err)
		}
	})
}

// TestMissingObjectsAreTold: each missing reference of a container's variables is a warning event of the container. It
// starts without optional references.
func TestMissingObjectsAreTold(t *testing.T) {
	type all = corev1.EnvFromSource
	type one = corev1.EnvVarSource
	object, yes := corev1.LocalObjectReference{Name: "gone"}, new(true)
	there := corev1.LocalObjectReference{Name: "there"}
	const waits = "waiting CreateContainerConfigError"
	for _, tt := range []struct {
		reason, message string
		all             *all // of an object's keys, or
		one             *one // of them
		state           string
	}{
		{
			reason: "MandatorySecretNotFound", message: `Secret "gone" not found`, state: waits,
			all: &all{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: object}},
		},
		{
			reason: "OptionalSecretNotFound", message: `Secret "gone" not found`, state: "running",
			all: &all{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: object, Optional: yes}},
		},
		{
			reason: "MandatoryConfigMapNotFound", message: `ConfigMap "gone" not found`, state: waits,
			all: &all{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: object}},
		},
		{
			reason: "OptionalConfigMapNotFound", message: `ConfigMap "gone" not found`, state: "running",
			all: &all{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: object, Optional: yes}},
		},
		{
			reason: "MandatorySecretKeyNotFound", message: `key "k" not found in Secret "there"`, state: waits,
			one: &one{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: there, Key: "k"}},
		},
		{
			reason: "OptionalConfigMapKeyNotFound", message: `key "k" not found in ConfigMap "there"`, state: "running",
			one: &one{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: there, Key: "k", Optional: yes}},
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				set := testpod.Set(t, []*corev1.ConfigMap{testpod.ConfigMap("there")}, []*corev1.Secret{testpod.Secret("there")})
				pod := testpod.New("Always", "main", "other")
				if tt.all != nil {
					pod.Spec.Containers[1].EnvFrom = []corev1.EnvFromSource{*tt.all}
				} else {
					pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: tt.one}}
				}
				s := supervise(t, newFake(), pod, func(o *Options) { o.Objects, o.VolumeDir = set, dir })
				if got := state(s.Status().ContainerStatuses[1]); got != tt.state {
					t.Errorf("%s, want %s", got, tt.state)
				}
				if got := s.messages(tt.reason); !slices.Equal(got, []string{"other: " + tt.message}) {
					t.Errorf("events %q of all %v", got, s.reasons())
				}
				for _, e := range s.events {
					if e.Reason == tt.reason && !e.Warning {
						t.Errorf("no warning: %+v", e)
					}
				}
				if tt.state == waits {
					return // a pod that fails fast ends, and Run returns the error
				}
				pod.UID = "u-2"
				fast := supervise(t, newFake(), pod, func(o *Options) { o.Objects, o.VolumeDir, o.FailFast = set, dir, true })
				if got := fast.messages(tt.reason); !slices.Equal(got, []string{"other: " + tt.message}) {
					t.Errorf("failing fast: events %q of all %v", got, fast.reasons())
				}
			})
		})
	}
}

// TestAMissingObjectFailsFast: a pod that fails fast ends.
func TestAMissingObjectFailsFast(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"volume": func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{testpod.ConfigVolume("v", "settings")} },
		"environment": func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
			}}}
		},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			pod := testpod.New("Always", "main")
			change(pod)
			s := supervise(t, newFake(), pod, func(o *Options) { o.VolumeDir, o.FailFast = dir, true })
			if err := s.end(); !errors.Is(err, ErrStart) || !errors.Is(err, volume.ErrNotFound) || !strings.Contains(err.Error(),
				`configmap "settings" not found`) {
				t.Errorf("%s: %v", name, err)
			}
			if got := s.messages("MandatoryConfigMapNotFound"); len(got) > 0 {
				t.Errorf("%s: events %q beside the error", name, got)
			}
		})
	}
}

// TestAVolumeThatFailsIsTriedAgain: after a delay, even without a change.
func TestAVolumeThatFailsIsTriedAgain(t *testing.T) {
	root := t.TempDir()
	blocker := filepath.Join(root, "volumes")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		set := testpod.Set(t, []*corev1.ConfigMap{testpod.ConfigMap("settings")}, nil)
		pod := testpod.New("Always", "main")
		pod.Spec.Volumes = []corev1.Volume{testpod.ConfigVolume("v", "settings")}
		s := supervise(t, newFake(), pod, func(o *Options) { o.Objects, o.VolumeDir = set, blocker })
		if got := state(s.Status().ContainerStatuses[0]); got != "waiting ContainerCreating" {
			t.Fatal(got)
		}
		if err := os.Remove(blocker); err != nil {
			t.Fatal(err)
		}
		if got := state(s.after(11 * time.Second).ContainerStatuses[0]); got != "running" {
			t.Error(got)
		}
	})
}

// TestAnUpdateOfAVolumeThatFailsIsTriedAgain: the old content stays meanwhile, and no other step waits for it.
func TestAnUpdateOfAVolumeThatFailsIsTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	synctest.Test(t, func(t *testing.T) {
		set := testpod.Set(t, []*corev1.ConfigMap{testpod.ConfigMap("settings", "a", "1")}, nil)
		pod := testpod.New("Always", "main")
		pod.Spec.Volumes = []corev1.Volume{testpod.ConfigVolume("v", "settings")}
		fake := newFake()
		s := supervise(t, fake, pod, func(o *Options) { o.Objects, o.VolumeDir = set, dir })
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := set.Apply([]*corev1.ConfigMap{testpod.ConfigMap("settings", "a", "2")}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fake.mu.Lock()
		for _, c := range fake.containers {
			fake.end(c, 1, "") // it is restarted anyway
		}
		fake.mu.Unlock()
		if c := s.after(time.Second).ContainerStatuses[0]; state(c) != "running" || c.RestartCount != 1 {
			t.Errorf("%s, %d restarts", state(c), c.RestartCount)
		}
		if !strings.Contains(strings.Join(s.reasons(), " "), "FailedMount") {
			t.Errorf("events %v", s.reasons())
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		s.after(15 * time.Second)
		if text, err := os.ReadFile(filepath.Join(dir, "kubernetes.io~configmap/v/a")); string(text) != "2" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// TestAContainerTellsWhyItsVolumesImageIsNotThere: with the kubelet's reasons.
func TestAContainerTellsWhyItsVolumesImageIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.pulls["bad:1"] = []error{errors.New("no such image"), errors.New("no such image")}
		pod := testpod.New("Always", "main")
		pod.Spec.Volumes = []corev1.Volume{{Name: "i",
			VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "bad:1", PullPolicy: corev1.PullAlways}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "i", MountPath: "/i", ReadOnly: true}}
		s := supervise(t, fake, pod)
		c := s.Status().ContainerStatuses[0]
		if got := state(c); got != "waiting ErrImagePull" && got != "waiting ImagePullBackOff" {
			t.Error(got)
		}
		if m := c.VolumeMounts; len(m) != 1 || m[0].MountPath != "/i" || *m[0].RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled {
			t.Errorf("%+v", m)
		}
		if got := state(s.after(time.Minute).ContainerStatuses[0]); got != "running" {
			t.Error(got)
		}
	})
}

// TestVolumesThatAreImages: each image is pulled by its policy, and mounted by the resulting reference.
func TestVolumesThatAreImages(t *testing.T) {
	image := func(reference string, policy corev1.PullPolicy) corev1.Volume {
		return corev1.Volume{Name: "i", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: reference,
			PullPolicy: policy}}}
	}
	for _, tc := range []struct {
		name   string
		volume corev1.Volume
		pulls  int
		ref    string
		err    error
	}{
		{name: "there", volume: image("here:1", corev1.PullIfNotPresent), ref: "sha256:here"},
		{name: "pulled", volume: image("other:1", corev1.PullIfNotPresent), pulls: 1, ref: "sha256:other:1"},
		{name: "never", volume: image("other:1", corev1.PullNever), err: ErrImage},
		{name: "fails", volume: image("bad:1", corev1.PullAlways), pulls: 1, err: ErrImage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.pulls["bad:1"] = []error{errors.New("no such image")}
				pod := testpod.New("Always", "main")
				pod.Spec.Volumes = []corev1.Volume{tc.volume}
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "i", MountPath: "/i", SubPath: "part"}}
				s := supervise(t, fake, pod, func(o *Options) { o.FailFast = tc.err != nil })
				if n := len(fake.called("PullImage")); n != tc.pulls {
					t.Errorf("%d pulls", n)
				}
				if tc.err != nil {
					if err := s.end(); !errors.Is(err, tc.err) {
						t.Error(err)
					}
					return
				}
				if got := state(s.Status().ContainerStatuses[0]); got != "running" {
					t.Fatal(got)
				}
				id, _ := s.Container("main")
				mount := fake.containers[id].config.Mounts[0]
				if mount.Image.GetImage() != tc.ref || mount.ImageSubPath != "part" || !mount.Readonly || mount.HostPath != "" {
					t.Errorf("mount %v", mount)
				}
			})
		})
	}
}
