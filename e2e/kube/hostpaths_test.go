package kube

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// testHostPaths: hostPaths, subPaths of them, and the claim of a local volume are directories of the node. A pod finds
// its predecessor's files there.
func (w *world) testHostPaths(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "local"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.local(ctx, t, "local", filepath.Join(dir, "local"))
	spec := strings.ReplaceAll(`{volumes: [{name: d, hostPath: {path: DIR/made, type: DirectoryOrCreate}},
    {name: f, hostPath: {path: DIR/file, type: File}},
    {name: l, persistentVolumeClaim: {claimName: local}}],
  containers: [{name: c, command: [sleep, "1000"], volumeMounts: [{name: d, mountPath: /d}, {name: d, mountPath: /part, subPath: a/b},
      {name: f, mountPath: /f, readOnly: true}, {name: l, mountPath: /l}, {name: l, mountPath: /lpart, subPath: p}]}]}`, "DIR", dir)
	w.pod(ctx, t, "writer", spec)
	w.ready(ctx, t, "writer")
	in := func(pod, script string) string {
		out, errs, err := w.exec(ctx, pod, corev1.PodExecOptions{Command: []string{"sh", "-c", script}}, nil)
		if err != nil {
			t.Errorf("%s: %q, %v", script, errs, err)
		}
		return out
	}
	in("writer", "cat /f >/d/copy; echo part >/part/x; echo local >/l/y; echo lpart >/lpart/z; sync")
	for path, want := range map[string]string{"made/copy": "text", "made/a/b/x": "part\n", "local/y": "local\n", "local/p/z": "lpart\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
			t.Errorf("%s on the node: %q, %v", path, got, err)
		}
	}
	if err := w.Client.CoreV1().Pods(ns).Delete(ctx, "writer", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	w.pod(ctx, t, "next", spec)
	w.ready(ctx, t, "next")
	if got := in("next", "cat /d/copy /part/x /l/y /lpart/z"); got != "textpart\nlocal\nlpart\n" {
		t.Errorf("the successor finds %q", got)
	}
}

// local creates a volume with a directory of the node, and a bound claim.
func (w *world) local(ctx context.Context, t *testing.T, name, path string) {
	t.Helper()
	w.volume(ctx, t, name, corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}})
}

// volume creates a volume of the node, and a bound claim.
func (w *world) volume(ctx context.Context, t *testing.T, name string, source corev1.PersistentVolumeSource,
	changes ...func(*corev1.PersistentVolume),
) {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	class := "by-hand"
	on := corev1.NodeSelectorRequirement{Key: "kubernetes.io/os", Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, StorageClassName: class, PersistentVolumeSource: source,
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{on}}},
		}},
	}}
	for _, change := range changes {
		change(volume)
	}
	if _, err := w.Client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: &class, VolumeName: name, VolumeMode: volume.Spec.VolumeMode,
		Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	if _, err := w.Client.CoreV1().PersistentVolumeClaims(ns).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
