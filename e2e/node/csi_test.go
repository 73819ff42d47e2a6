package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube/testcsi"
)

// testCSI: the node registers a CSI driver, and pods use its volumes: a file system with fsGroup and subPaths in two
// pods at once, a read-only one, a block device, and an ephemeral one. Afterwards nothing is left.
func (w *world) testCSI(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	driver := w.csiDisks(ctx, t, "csi")
	w.csiRegistered(ctx, t)
	w.csiVolume(ctx, t, "raw", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) })
	w.csiFiles(ctx, t)
	w.csiDevice(ctx, t)
	w.csiKilled(ctx, t, driver)
	w.csiAttached(ctx, t, driver)
	w.csiLeft(ctx, t, driver)
}

// csiDisks serves a CSI driver until the test's end, with one volume and a claim of that name.
func (w *world) csiDisks(ctx context.Context, t *testing.T, name string) *testcsi.Driver {
	t.Helper()
	driver := testcsi.Start(t, w.KubeletRoot(), testkube.NodeName)
	if err := driver.Registered(ctx); err != nil {
		t.Fatal(err)
	}
	w.csiDriver(ctx, t, false)
	w.csiVolume(ctx, t, name, nil)
	return driver
}

// csiSpec returns the specification of a pod with a claim.
func csiSpec(claim string) string {
	return `{volumes: [{name: v, persistentVolumeClaim: {claimName: ` + claim + `}}],
  containers: [{name: c, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}]}]}`
}

// csiRegistered: the CSINode lists the driver, and the Node says that controllers may attach volumes.
func (w *world) csiRegistered(ctx context.Context, t *testing.T) {
	t.Helper()
	info, err := w.Client.StorageV1().CSINodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if all := info.Spec.Drivers; err != nil || len(all) != 1 || all[0].Name != testcsi.Name || all[0].NodeID != testkube.NodeName {
		t.Errorf("CSINode: %+v, %v", info, err)
	}
	node, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil || node.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" ||
		!strings.Contains(node.Annotations["csi.volume.kubernetes.io/nodeid"], testcsi.Name) {
		t.Errorf("annotations: %v, %v", node.Annotations, err)
	}
}

// csiFiles: two pods share one volume. Then another pod finds their files and cannot write.
func (w *world) csiFiles(ctx context.Context, t *testing.T) {
	t.Helper()
	spec := func(readOnly string) string {
		return strings.ReplaceAll(`{securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000},
  volumes: [{name: v, persistentVolumeClaim: {claimName: csi, readOnly: RO}}, {name: own, csi: {driver: `+testcsi.Name+`}}],
  containers: [{name: c, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /part, subPath: part},
    {name: own, mountPath: /own}]}]}`, "RO", readOnly)
	}
	for _, name := range []string{"csi-one", "csi-two"} {
		w.pod(ctx, t, name, spec("false"))
	}
	for _, name := range []string{"csi-one", "csi-two"} {
		w.ready(ctx, t, name)
	}
	const script = "echo text >/v/x && echo part >/part/y && echo own >/own/z && sync && stat -c %g /v/x && " +
		"df -k /v | awk 'NR==2 {print $2 < 20000}'"
	if out, err := w.sh(ctx, "csi-one", script); err != nil || out != "2000\n1\n" {
		t.Errorf("the writer: %q, %v", out, err)
	}
	if out, err := w.sh(ctx, "csi-two", "cat /v/x /v/part/y; ls /own"); err != nil || out != "text\npart\n" {
		t.Errorf("the other pod finds %q, %v", out, err)
	}
	w.csiDelete(ctx, t, "csi-one")
	if out, err := w.sh(ctx, "csi-two", "cat /v/x && echo more >>/v/x && sync"); err != nil || out != "text\n" {
		t.Errorf("without its neighbour it finds %q, %v", out, err)
	}
	w.csiDelete(ctx, t, "csi-two")
	w.pod(ctx, t, "csi-reader", spec("true"))
	w.ready(ctx, t, "csi-reader")
	if out, err := w.sh(ctx, "csi-reader", "cat /v/x /v/part/y; ls /own"); err != nil || out != "text\nmore\npart\n" {
		t.Errorf("the successor finds %q, %v", out, err)
	}
	if out, err := w.sh(ctx, "csi-reader", "echo >/v/new"); err == nil || !strings.Contains(out, "Read-only file system") {
		t.Errorf("a write to a read-only volume: %q, %v", out, err)
	}
	w.csiDelete(ctx, t, "csi-reader")
}

// csiDevice: a volume in block mode is a device. The next pod finds the data that was written to it.
func (w *world) csiDevice(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, c := range []struct{ pod, script, want string }{
		{"raw-writer", "echo words | dd of=/dev/raw bs=512 seek=9 conv=sync,fsync 2>/dev/null && test -b /dev/raw && " +
			"blockdev --getsize64 /dev/raw", "16777216\n"},
		{"raw-reader", "dd if=/dev/raw bs=512 skip=9 count=1 2>/dev/null | tr -d '\\0'", "words\n"},
	} {
		w.pod(ctx, t, c.pod, `{volumes: [{name: v, persistentVolumeClaim: {claimName: raw}}],
  containers: [{name: c, command: [sleep, "1000"], volumeDevices: [{name: v, devicePath: /dev/raw}]}]}`)
		w.ready(ctx, t, c.pod)
		if out, err := w.sh(ctx, c.pod, c.script); err != nil || out != c.want {
			t.Errorf("%s: %q, %v", c.pod, out, err)
		}
		w.csiDelete(ctx, t, c.pod)
	}
}

// csiKilled: a pod that was deleted while the node was killed leaves nothing. Another pod keeps its volume.
func (w *world) csiKilled(ctx context.Context, t *testing.T, driver *testcsi.Driver) {
	t.Helper()
	for _, name := range []string{"csi-stays", "csi-goes"} {
		w.pod(ctx, t, name, csiSpec("csi"))
	}
	for _, name := range []string{"csi-stays", "csi-goes"} {
		w.ready(ctx, t, name)
	}
	w.node.Kill()
	err := w.Client.CoreV1().Pods(ns).Delete(ctx, "csi-goes", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	if err != nil {
		t.Error(err)
	}
	w.serve()
	w.gone(ctx, t, "csi-goes", 1)
	if out, err := w.sh(ctx, "csi-stays", "echo on >/v/on && sync && cat /v/on"); err != nil || out != "on\n" {
		t.Errorf("the pod that stays: %q, %v", out, err)
	}
	if err := driver.Unmounted(); err == nil {
		t.Error("the volume of the pod that stays is unmounted")
	}
	w.csiDelete(ctx, t, "csi-stays")
}

// csiAttached: a volume that needs attachment is mounted after the cluster's controller and an attacher, played by the
// test, attached it. The Node lists the volume as in use from before the mount until the unmount. Then the volume is
// detached.
func (w *world) csiAttached(ctx context.Context, t *testing.T, driver *testcsi.Driver) {
	t.Helper()
	drivers := w.Client.StorageV1().CSIDrivers()
	rules, err := drivers.Get(ctx, testcsi.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	next := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: testcsi.Name}, Spec: rules.Spec}
	next.Spec.AttachRequired, next.Spec.TokenRequests = new(true), []storagev1.TokenRequest{{Audience: "disks"}}
	if err := drivers.Delete(ctx, testcsi.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := drivers.Create(ctx, next, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.csiVolume(ctx, t, "attached", func(v *corev1.PersistentVolume) {
		v.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: ns, Name: "for-the-driver"}
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "for-the-driver"}, StringData: map[string]string{"key": "word"}}
	if _, err := w.Client.CoreV1().Secrets(ns).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.csiGrow(ctx, t, "attached")
	w.pod(ctx, t, "csi-attached", csiSpec("attached"))
	attachments := w.Client.StorageV1().VolumeAttachments()
	const name = corev1.UniqueVolumeName("kubernetes.io/csi/" + testcsi.Name + "^attached")
	used := func(ctx context.Context, want bool) error {
		node, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
		if err == nil && slices.Contains(node.Status.VolumesInUse, name) != want {
			err = fmt.Errorf("the node reports as in use %v", node.Status.VolumesInUse)
		}
		return err
	}
	w.Wait(ctx, t, "the node to report the volume as in use", func(ctx context.Context) error { return used(ctx, true) })
	if err := driver.Unmounted(); err != nil {
		t.Errorf("before it is attached: %v", err)
	}
	w.Wait(ctx, t, "the volume to be attached", func(ctx context.Context) error {
		list, err := attachments.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return errors.Join(fmt.Errorf("there are %d attachments", len(list.Items)), err)
		}
		one := list.Items[0].DeepCopy()
		one.Status.Attached = true
		_, err = attachments.UpdateStatus(ctx, one, metav1.UpdateOptions{})
		return err
	})
	w.ready(ctx, t, "csi-attached")
	if err := used(ctx, true); err != nil {
		t.Error(err)
	}
	staged, published := driver.Asked("attached")
	token := published.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"]
	if staged.GetSecrets()["key"] != "word" || !strings.HasPrefix(token, `{"disks":{"token":"`) {
		t.Errorf("the driver got the secrets %v and a token of %d bytes", staged.GetSecrets(), len(token))
	}
	claim, err := w.Client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "attached", metav1.GetOptions{})
	if size := claim.Status.Capacity[corev1.ResourceStorage]; err != nil || size.String() != "32Mi" ||
		len(claim.Status.AllocatedResourceStatuses) > 0 {
		t.Errorf("the claim's status is %v, %v", &claim.Status, err)
	}
	w.csiDelete(ctx, t, "csi-attached")
	w.Wait(ctx, t, "the volume to be detached", func(ctx context.Context) error {
		list, err := attachments.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d attachments are left", len(list.Items))
		}
		return errors.Join(err, used(ctx, false))
	})
}

// csiGrow sets a larger size on a volume, and marks its claim as waiting for the node to resize it.
func (w *world) csiGrow(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	size := []byte(`{"spec": {"capacity": {"storage": "32Mi"}}}`) // a patch, because the binding controller changes the object too
	_, err := w.Client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, size, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claims := w.Client.CoreV1().PersistentVolumeClaims(ns)
	w.Wait(ctx, t, "the claim to be bound", func(ctx context.Context) error {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err == nil && claim.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("it is %s", claim.Status.Phase)
		}
		if err != nil {
			return err
		}
		claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending,
		}
		_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return err
	})
}

// csiLeft: no mount, device or directory of a pod is left.
func (w *world) csiLeft(ctx context.Context, t *testing.T, driver *testcsi.Driver) {
	t.Helper()
	w.Wait(ctx, t, "the volumes to be unmounted", func(context.Context) error { return driver.Unmounted() })
	for _, dir := range []string{filepath.Join(w.KubeletRoot(), "pods"), filepath.Join(w.data(), "node", "csi")} {
		if left, err := os.ReadDir(dir); err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	staged := filepath.Join(w.KubeletRoot(), "plugins", "kubernetes.io", "csi")
	err := filepath.WalkDir(staged, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (d.Name() == "globalmount" || strings.HasPrefix(d.Name(), "csi-")) {
			err = fmt.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}

// csiDelete deletes a pod and waits until it is gone.
func (w *world) csiDelete(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	err := w.Client.CoreV1().Pods(ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	if err != nil {
		t.Error(err)
	}
	w.Wait(ctx, t, "the end of "+name, func(ctx context.Context) error {
		_, err := w.Client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it still exists")
		}
		return err
	})
}

// sh runs a script in a pod's container.
func (w *world) sh(ctx context.Context, pod, script string) (string, error) {
	out, errs, err := w.exec(ctx, pod, corev1.PodExecOptions{Command: []string{"sh", "-c", script}}, nil)
	return out + errs, err
}

// csiDriver registers the driver in the cluster.
func (w *world) csiDriver(ctx context.Context, t *testing.T, attached bool) {
	t.Helper()
	policy := storagev1.FileFSGroupPolicy
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: testcsi.Name}, Spec: storagev1.CSIDriverSpec{
		AttachRequired: &attached, FSGroupPolicy: &policy, PodInfoOnMount: new(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	}}
	if _, err := w.Client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := w.Client.StorageV1().CSIDrivers().Delete(context.WithoutCancel(ctx), testcsi.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
}

// csiVolume creates a volume of the driver and a bound claim of the same name.
func (w *world) csiVolume(ctx context.Context, t *testing.T, name string, change func(*corev1.PersistentVolume)) {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:                      &corev1.ObjectReference{Namespace: ns, Name: name},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: testcsi.Name, VolumeHandle: name, FSType: "ext4",
		}},
	}}
	if change != nil {
		change(v)
	}
	if v.Spec.VolumeMode != nil {
		v.Spec.CSI.FSType = ""
	}
	if _, err := w.Client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: v.Spec.AccessModes, VolumeName: name, StorageClassName: new(""), VolumeMode: v.Spec.VolumeMode,
		Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	if _, err := w.Client.CoreV1().PersistentVolumeClaims(ns).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		err := w.Client.CoreV1().PersistentVolumeClaims(ns).Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil {
			err = w.Client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Error(err)
		}
	})
}
