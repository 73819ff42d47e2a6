package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func TestBeyond(t *testing.T) {
	size, group, mode := resource.MustParse("1Mi"), int64(77), int32(0o1700)
	empty := func(name string, source corev1.EmptyDirVolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &source}}
	}
	for _, test := range []struct {
		name   string
		change func(o *Options)
		want   runtimev1.PodOptions
		names  string // fields that a plain runtime does not support; empty for none
	}{
		{name: "nothing", change: func(*Options) {}, want: runtimev1.PodOptions{Unstated: true}},
		{
			name: "a plain emptyDir", want: runtimev1.PodOptions{Unstated: true},
			change: func(o *Options) { o.Pod.Spec.Volumes = []corev1.Volume{empty("e", corev1.EmptyDirVolumeSource{})} },
		},
		{
			name: "emptyDirs", names: "sizeLimit",
			change: func(o *Options) {
				o.Pod.Spec.Volumes = []corev1.Volume{
					empty("ram", corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}),
					empty("mode", corev1.EmptyDirVolumeSource{Mode: &mode}),
				}
			},
			want: runtimev1.PodOptions{Unstated: true, EmptyDirs: map[string]containerv1.Dir{
				"ram": {Name: "ram", Medium: containerv1.Memory, Size: 1 << 20}, "mode": {Name: "mode", Mode: 0o1700},
			}},
		},
		{
			name: "a group", names: "fsGroup", want: runtimev1.PodOptions{Unstated: true, FSGroup: 77},
			change: func(o *Options) { o.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group} },
		},
		{
			name: "the door's choices", names: "accelerator", want: runtimev1.PodOptions{Unstated: true, Network: "none", Accel: "tcg", Cold: true},
			change: func(o *Options) { o.Network, o.Accel, o.Template = "none", "tcg", "off" },
		},
		{
			name: "limits", names: "ephemeral-storage", want: runtimev1.PodOptions{ScratchBytes: 1 << 20},
			change: func(o *Options) {
				o.Pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
					corev1.ResourceMemory: size, corev1.ResourceEphemeralStorage: size,
				}
			},
		},
		{
			name: "limits of the pod's own", names: "limits[memory]", want: runtimev1.PodOptions{WholeMemory: true},
			change: func(o *Options) {
				o.Pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: size}}
			},
		},
	} {
		o := &Options{Pod: testpod.New("Never", "main")}
		test.change(o)
		if diff := cmp.Diff(test.want, Beyond(o)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		err := Plain(o)
		if errors.Is(err, ErrBeyondCRI) != (test.names != "") || err != nil && !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s: a plain runtime: %v, want %q named", test.name, err, test.names)
		}
	}
}

func TestBeyondContainer(t *testing.T) {
	pod := testpod.New("Never", "main")
	container := &pod.Spec.Containers[0]
	if got := BeyondContainer(&Options{Pod: pod}, container); !cmp.Equal(got, runtimev1.ContainerOptions{}) {
		t.Errorf("nothing: %+v", got)
	}
	container.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
	if got := BeyondContainer(&Options{Pod: pod}, container); got.StorageBytes != 1<<20 {
		t.Errorf("a limit: %+v", got)
	}
	pod.Annotations = map[string]string{"io.bulkhead.ulimits/main": "core=0", "io.bulkhead.ulimits/other": "core=1"}
	if got := BeyondContainer(&Options{Pod: pod}, container).Rlimits; len(got) != 1 || got[0].Type != "RLIMIT_CORE" || got[0].Hard != 0 {
		t.Errorf("ulimits: %+v", got)
	}
	o := Options{Pod: pod}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
	pod.Annotations["io.bulkhead.ulimits/main"] = "core"
	if err := o.Check(); err == nil {
		t.Error("invalid ulimits were accepted")
	}
}

// TestSoftStorage: soft limits leave some room beyond them; a missing limit stays missing.
func TestSoftStorage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int64{"": {0, 0}, "10Mi": {26 << 20, 42 << 20}, "1Gi": {1<<30 + 1<<30/10, 1<<30 + 2*(1<<30/10)}} {
		p := testpod.New("Never", "main")
		if text != "" {
			p.Spec.Containers[0].Resources.Limits = testpod.Resources("ephemeral-storage=" + text)
		}
		o := &Options{Pod: p, SoftStorage: true}
		if got := [2]int64{BeyondContainer(o, &p.Spec.Containers[0]).StorageBytes, Beyond(o).ScratchBytes}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
