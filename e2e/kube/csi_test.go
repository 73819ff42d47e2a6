package kube

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube/testcsi"
)

// testCSI: a pod has the volume that a CSI driver mounts on the node, with fsGroup and subPaths. The next pod finds its
// data. Read-only and ephemeral volumes work too.
func (w *world) testCSI(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 2*time.Minute)
	driver := testcsi.Start(t, w.KubeletRoot(), testkube.NodeName)
	if err := driver.Registered(ctx); err != nil {
		t.Fatal(err)
	}
	w.csiDriver(ctx, t)
	w.volume(ctx, t, "csi", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: testcsi.Name, VolumeHandle: "one", FSType: "ext4",
	}})
	spec := func(readOnly string) string {
		return strings.ReplaceAll(`{securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000},
  volumes: [{name: v, persistentVolumeClaim: {claimName: csi, readOnly: RO}}, {name: own, csi: {driver: `+testcsi.Name+`}}],
  containers: [{name: c, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /part, subPath: part},
    {name: own, mountPath: /own}]}]}`, "RO", readOnly)
	}
	in := func(pod, script string) (string, error) {
		out, errs, err := w.exec(ctx, pod, corev1.PodExecOptions{Command: []string{"sh", "-c", script}}, nil)
		return out + errs, err
	}
	w.pod(ctx, t, "csi-writer", spec("false"))
	w.ready(ctx, t, "csi-writer")
	out, err := in("csi-writer", "echo text >/v/x && echo part >/part/y && echo own >/own/z && sync && stat -c %g /v/x && "+
		"df -k /v | awk 'NR==2 {print $2 < 20000}'")
	if err != nil || out != "2000\n1\n" {
		t.Errorf("the writer: %q, %v", out, err)
	}
	w.delete(ctx, t, "csi-writer")
	w.pod(ctx, t, "csi-reader", spec("true"))
	w.ready(ctx, t, "csi-reader")
	if out, err := in("csi-reader", "cat /v/x /v/part/y; ls /own"); err != nil || out != "text\npart\n" {
		t.Errorf("the successor finds %q, %v", out, err)
	}
	if out, err := in("csi-reader", "echo >/v/new"); err == nil || !strings.Contains(out, "Read-only file system") {
		t.Errorf("a write to a read-only volume: %q, %v", out, err)
	}
	w.delete(ctx, t, "csi-reader")
	w.blockVolume(ctx, t)
	w.Wait(ctx, t, "the volume to be unmounted", func(context.Context) error { return driver.Unmounted() })
}

// blockVolume: a volume in block mode is a device in the pod. The next pod finds the data that was written to it.
func (w *world) blockVolume(ctx context.Context, t *testing.T) {
	t.Helper()
	source := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: testcsi.Name, VolumeHandle: "raw"}}
	w.volume(ctx, t, "raw", source, func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
	for _, c := range []struct{ pod, script, want string }{
		{"raw-writer", "echo words | dd of=/dev/raw bs=512 seek=9 conv=sync,fsync 2>/dev/null && test -b /dev/raw && " +
			"blockdev --getsize64 /dev/raw", "16777216\n"},
		{"raw-reader", "dd if=/dev/raw bs=512 skip=9 count=1 2>/dev/null | tr -d '\\0'", "words\n"},
	} {
		w.pod(ctx, t, c.pod, `{volumes: [{name: v, persistentVolumeClaim: {claimName: raw}}],
  containers: [{name: c, command: [sleep, "1000"], volumeDevices: [{name: v, devicePath: /dev/raw}]}]}`)
		w.ready(ctx, t, c.pod)
		out, errs, err := w.exec(ctx, c.pod, corev1.PodExecOptions{Command: []string{"sh", "-c", c.script}}, nil)
		if err != nil || out != c.want {
			t.Errorf("%s: %q, %v: %s", c.pod, out, err, errs)
		}
		w.delete(ctx, t, c.pod)
	}
}

// csiDriver registers the driver in the cluster.
func (w *world) csiDriver(ctx context.Context, t *testing.T) {
	t.Helper()
	attached, policy := false, storagev1.FileFSGroupPolicy
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: testcsi.Name}, Spec: storagev1.CSIDriverSpec{
		AttachRequired: &attached, FSGroupPolicy: &policy,
		PodInfoOnMount:       new(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	}}
	if _, err := w.Client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
