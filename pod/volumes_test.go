package pod

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/volume"
)

func configVolume(name, object string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: object}}}}
}

// reasons are those of the events so far.
func (s *supervised) reasons() (out []string) {
	for _, e := range s.events {
		out = append(out, e.Reason)
	}
	return out
}

// TestWhatWaitsForAnObjectStartsWhenItComes: without any time passing.
func TestWhatWaitsForAnObjectStartsWhenItComes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	synctest.Test(t, func(t *testing.T) {
		fake, set := newFake(), &volume.Set{}
		pod := onePod("Always", "main")
		pod.Spec.Volumes = []corev1.Volume{configVolume("v", "settings")}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{secretKey("KEY", "keys", "key", nil)}
		s := supervise(t, fake, pod, func(o *Options) { o.Objects, o.VolumeDir = set, dir })
		if got := state(s.Status().ContainerStatuses[0]); got != "waiting ContainerCreating" || !strings.Contains(strings.Join(s.reasons(), " "), "FailedMount") {
			t.Fatalf("%s, events %v", got, s.reasons())
		}
		if err := set.Put([]*corev1.ConfigMap{configMapOf("settings", "a", "1")}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c := s.Status().ContainerStatuses[0]
		if got := state(c); got != "waiting CreateContainerConfigError" || c.State.Waiting.Message != `secret "keys" not found` {
			t.Fatalf("%s: %+v", got, c.State.Waiting)
		}
		if err := set.Put(nil, []*corev1.Secret{secretOf("keys", "key", "hush")}); err != nil {
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
		// Another version, and then one of which a key is missing.
		if err := set.Put([]*corev1.ConfigMap{configMapOf("settings", "a", "2")}, nil); err != nil {
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
			t.Errorf("volumes are left: %v", err)
		}
	})
}

// TestAMissingObjectFailsFast: where nobody waits.
func TestAMissingObjectFailsFast(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"volume": func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{configVolume("v", "settings")} },
		"environment": func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{allOfConfig("", "settings", nil)}
		},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			pod := onePod("Always", "main")
			change(pod)
			s := supervise(t, newFake(), pod, func(o *Options) { o.VolumeDir, o.FailFast = dir, true })
			if err := s.end(); !errors.Is(err, ErrStart) || !errors.Is(err, volume.ErrNotFound) || !strings.Contains(err.Error(), `configmap "settings" not found`) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestAVolumeThatFailsIsTriedAgain: by the clock too, if nothing tells of a
// change.
func TestAVolumeThatFailsIsTriedAgain(t *testing.T) {
	root := t.TempDir()
	blocker := filepath.Join(root, "volumes")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		set := setOf(t, []*corev1.ConfigMap{configMapOf("settings")}, nil)
		pod := onePod("Always", "main")
		pod.Spec.Volumes = []corev1.Volume{configVolume("v", "settings")}
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

// TestAnUpdateOfAVolumeThatFailsIsTriedAgain: with the old content meanwhile,
// and nothing that waits for it.
func TestAnUpdateOfAVolumeThatFailsIsTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	synctest.Test(t, func(t *testing.T) {
		set := setOf(t, []*corev1.ConfigMap{configMapOf("settings", "a", "1")}, nil)
		pod := onePod("Always", "main")
		pod.Spec.Volumes = []corev1.Volume{configVolume("v", "settings")}
		fake := newFake()
		s := supervise(t, fake, pod, func(o *Options) { o.Objects, o.VolumeDir = set, dir })
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := set.Put([]*corev1.ConfigMap{configMapOf("settings", "a", "2")}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fake.mu.Lock()
		for _, c := range fake.containers {
			fake.end(c, 1, "") // it is started anew all the same
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
		pod := onePod("Always", "main")
		pod.Spec.Volumes = []corev1.Volume{{Name: "i", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "bad:1", PullPolicy: corev1.PullAlways}}}}
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

// TestVolumesThatAreImages: each is pulled by its policy, and mounted by what
// came of that.
func TestVolumesThatAreImages(t *testing.T) {
	image := func(reference string, policy corev1.PullPolicy) corev1.Volume {
		return corev1.Volume{Name: "i", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: reference, PullPolicy: policy}}}
	}
	for _, tc := range []struct {
		name   string
		volume corev1.Volume
		pulls  int
		ref    string
		err    error
	}{
		{"there", image("here:1", corev1.PullIfNotPresent), 0, "sha256:here", nil},
		{"pulled", image("other:1", corev1.PullIfNotPresent), 1, "sha256:other:1", nil},
		{"never", image("other:1", corev1.PullNever), 0, "", ErrImage},
		{"fails", image("bad:1", corev1.PullAlways), 1, "", ErrImage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.pulls["bad:1"] = []error{errors.New("no such image")}
				pod := onePod("Always", "main")
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

func TestContainerMounts(t *testing.T) {
	pod := onePod("Never", "main")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, configVolume("config", "settings"),
		{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}},
	}
	enabled, down := corev1.RecursiveReadOnlyEnabled, corev1.MountPropagationHostToContainer
	lookup := func(name string) (string, bool) {
		values := map[string]string{"A": "a", "UP": "../x", "ROOT": "/etc", "EMPTY": ""}
		value, known := values[name]
		return value, known
	}
	const root = "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~"
	for _, tc := range []struct {
		name  string
		mount corev1.VolumeMount
		want  *runtimeapi.Mount
		err   string
	}{
		{"whole", corev1.VolumeMount{Name: "disk"}, &runtimeapi.Mount{HostPath: root + "empty-dir/disk"}, ""},
		{"files", corev1.VolumeMount{Name: "config"}, &runtimeapi.Mount{HostPath: root + "configmap/config", Readonly: true}, ""},
		{"part", corev1.VolumeMount{Name: "disk", SubPath: "a/./b/"}, &runtimeapi.Mount{HostPath: root + "empty-dir/disk/a/b"}, ""},
		{"dot", corev1.VolumeMount{Name: "disk", SubPath: "."}, &runtimeapi.Mount{HostPath: root + "empty-dir/disk"}, ""},
		{"confusing part", corev1.VolumeMount{Name: "disk", SubPath: "kubernetes.io~secret/x"}, &runtimeapi.Mount{HostPath: root + "empty-dir/disk/kubernetes.io~secret/x"}, ""},
		{"expression", corev1.VolumeMount{Name: "disk", SubPathExpr: "$(A)/$$(A)/b"}, &runtimeapi.Mount{HostPath: root + "empty-dir/disk/a/$(A)/b"}, ""},
		{"empty expression", corev1.VolumeMount{Name: "disk", SubPathExpr: "$(EMPTY)"}, &runtimeapi.Mount{HostPath: root + "empty-dir/disk"}, ""},
		{"options", corev1.VolumeMount{Name: "disk", ReadOnly: true, RecursiveReadOnly: &enabled, BindMountOptions: []string{"noexec"}},
			&runtimeapi.Mount{HostPath: root + "empty-dir/disk", Readonly: true, RecursiveReadOnly: true, MountOptions: []string{"noexec"}}, ""},
		{"propagation", corev1.VolumeMount{Name: "disk", MountPropagation: &down}, &runtimeapi.Mount{HostPath: root + "empty-dir/disk", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}, ""},
		{"unknown variable", corev1.VolumeMount{Name: "disk", SubPathExpr: "$(B)"}, nil, `missing value for "B"`},
		{"variable that climbs", corev1.VolumeMount{Name: "disk", SubPathExpr: "$(UP)"}, nil, "must not contain '..'"},
		{"variable of the root", corev1.VolumeMount{Name: "disk", SubPathExpr: "$(ROOT)"}, nil, "must not be an absolute path"},
		{"no volume", corev1.VolumeMount{Name: "other"}, nil, "no such volume"},
		{"kind", corev1.VolumeMount{Name: "claim"}, nil, "its kind is not honoured"},
	} {
		tc.mount.MountPath = "/at"
		got, err := containerMounts(&Options{Pod: pod}, &corev1.Container{VolumeMounts: []corev1.VolumeMount{tc.mount}}, nil, lookup)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		tc.want.ContainerPath = "/at"
		if diff := cmp.Diff(tc.want.String(), got[0].String()); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
