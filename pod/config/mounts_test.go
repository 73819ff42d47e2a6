package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func TestContainerMounts(t *testing.T) {
	pod := testpod.New("Never", "main")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, testpod.ConfigVolume("config", "settings"),
		{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ReadOnly: true}}},
		{Name: "nfs", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}},
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
		{name: "whole", mount: corev1.VolumeMount{Name: "disk"}, want: &runtimeapi.Mount{HostPath: root + "empty-dir/disk"}},
		{name: "files", mount: corev1.VolumeMount{Name: "config"}, want: &runtimeapi.Mount{HostPath: root + "configmap/config", Readonly: true}},
		{name: "part", mount: corev1.VolumeMount{Name: "disk", SubPath: "a/./b/"},
			want: &runtimeapi.Mount{HostPath: root + "empty-dir/disk/a/b"}},
		{name: "dot", mount: corev1.VolumeMount{Name: "disk", SubPath: "."}, want: &runtimeapi.Mount{HostPath: root + "empty-dir/disk"}},
		{name: "confusing part", mount: corev1.VolumeMount{Name: "disk", SubPath: "kubernetes.io~secret/x"},
			want: &runtimeapi.Mount{HostPath: root + "empty-dir/disk/kubernetes.io~secret/x"}},
		{name: "expression", mount: corev1.VolumeMount{Name: "disk", SubPathExpr: "$(A)/$$(A)/b"},
			want: &runtimeapi.Mount{HostPath: root + "empty-dir/disk/a/$(A)/b"}},
		{name: "empty expression", mount: corev1.VolumeMount{Name: "disk", SubPathExpr: "$(EMPTY)"},
			want: &runtimeapi.Mount{HostPath: root + "empty-dir/disk"}},
		{name: "options", mount: corev1.VolumeMount{Name: "disk", ReadOnly: true, RecursiveReadOnly: &enabled,
			BindMountOptions: []string{"noexec"}},
			want: &runtimeapi.Mount{HostPath: root + "empty-dir/disk", Readonly: true, RecursiveReadOnly: true, MountOptions: []string{"noexec"}}},
		{name: "propagation", mount: corev1.VolumeMount{Name: "disk", MountPropagation: &down},
			want: &runtimeapi.Mount{HostPath: root + "empty-dir/disk", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}},
		{name: "unknown variable", mount: corev1.VolumeMount{Name: "disk", SubPathExpr: "$(B)"}, err: `missing value for "B"`},
		{name: "variable that climbs", mount: corev1.VolumeMount{Name: "disk", SubPathExpr: "$(UP)"}, err: "must not contain '..'"},
		{name: "variable of the root", mount: corev1.VolumeMount{Name: "disk", SubPathExpr: "$(ROOT)"}, err: "must not be an absolute path"},
		{name: "no volume", mount: corev1.VolumeMount{Name: "other"}, err: "no such volume"},
		{name: "claim", mount: corev1.VolumeMount{Name: "claim", SubPath: "a"},
			want: &runtimeapi.Mount{HostPath: root + "host-path/claim/a", Readonly: true}},
		{name: "kind", mount: corev1.VolumeMount{Name: "nfs"}, err: "its kind is not honoured"},
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
