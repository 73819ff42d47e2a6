package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/internal/testpod"
)

func TestContainerMounts(t *testing.T) {
	pod := testpod.New("Never", "main")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, testpod.ConfigVolume("config", "settings"),
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
