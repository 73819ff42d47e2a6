package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// documentedClaims returns the manifests of docs/node.md: a class that binds claims when a pod needs them, and a local
// PersistentVolume. volume fills in its name, path and further fields.
func documentedClaims(t testing.TB) (class string, volume func(name, path, more string) string) {
	t.Helper()
	class, of, found := strings.Cut(heredoc(t, "kubectl apply -f -"), "---\n")
	of, whole := strings.CutSuffix(strings.TrimSpace(of), "}}")
	if !found || !whole {
		t.Fatal("docs/node.md has no class and volume in one heredoc")
	}
	for _, name := range []string{"disk-1", "/mnt/disk-1", "NODENAME"} {
		if !strings.Contains(of, name) {
			t.Fatalf("docs/node.md has no %s in its volume: %s", name, of)
		}
	}
	return class, func(name, path, more string) string {
		here := strings.NewReplacer("/mnt/disk-1", path, "disk-1", name, "NODENAME", testkube.NodeName)
		return "---\n" + here.Replace(of) + more + "}}\n"
	}
}

// claimOf returns the specification of a claim of that class with a size.
func claimOf(size, more string) string {
	return fmt.Sprintf(`{storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}%s}`, size, more)
}

// place creates a directory for a volume.
func (w *world) place(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(w.Dir, "v", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// loop creates a block device of 16 MiB, and returns it with its file.
func (w *world) loop(t *testing.T, name string) (device, file string) {
	t.Helper()
	file = filepath.Join(w.place(t, "disks"), name)
	if err := os.WriteFile(file, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	return device, file
}

// testClaims: pods get the volumes that the scheduler and controllers bound to their claims. The data outlive the pods.
// A pod with an unbound claim waits.
func (w *world) testClaims(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.quiet(ctx, t)
	bare, file := w.loop(t, "bare")
	blank, _ := w.loop(t, "blank")
	class, volume := documentedClaims(t)
	w.apply(ctx, t, class+volume("pv-set", w.place(t, "set"), "")+volume("pv-own", w.place(t, "own"), "")+
		volume("pv-block", bare, ", volumeMode: Block")+volume("pv-disk", blank, "")+fmt.Sprintf(`---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-host}, spec: {capacity: {storage: 1Gi}, storageClassName: "",
  accessModes: [ReadWriteMany], claimRef: {namespace: default, name: host}, hostPath: {path: %s, type: Directory}}}`, w.place(t, "host")))
	t.Cleanup(func() { // before the volumes, which exist while they are bound
		ctx := testdeadline.Context(t, time.Minute)
		w.typed(context.WithoutCancel(ctx), t, "", "delete", "pvc", "--ignore-not-found", "host", "block", "disk")
	})
	t.Run("late", w.testLateClaim)
	t.Run("kinds", func(t *testing.T) { w.testClaimKinds(t, file) })
	t.Run("set", w.testClaimsOfSet)
}

// testLateClaim: an event says that the pod waits for its claim. The pod runs once the claim exists.
func (w *world) testLateClaim(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "late", `{nodeName: node, volumes: [{name: v, persistentVolumeClaim: {claimName: host}}],
  containers: [{name: c, command: [sh, -c, "echo late >/v/f; echo done; exec sleep 1000"], volumeMounts: [{name: v, mountPath: /v}]}]}`)
	w.Wait(ctx, t, "the event", func(ctx context.Context) error {
		if got := w.messages(ctx, t, "late", "FailedMount"); !strings.Contains(got, `persistentvolumeclaims "host" not found`) {
			return fmt.Errorf("events %q", got)
		}
		return nil
	})
	w.claim(ctx, t, "host", `{storageClassName: "", volumeName: pv-host, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}`)
	w.expectLog(ctx, t, "late", corev1.PodLogOptions{}, "done\n")
	if text, err := os.ReadFile(filepath.Join(w.place(t, "host"), "f")); err != nil || string(text) != "late\n" {
		t.Errorf("on the host: %q, %v", text, err)
	}
}

// claim creates a claim. The caller removes it.
func (w *world) claim(ctx context.Context, t *testing.T, name, spec string) {
	t.Helper()
	manifest := fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: %s}`, name, spec)
	w.typed(ctx, t, manifest, "apply", "-f", "-")
}

// messages returns the messages of a pod's events with a reason.
func (w *world) messages(ctx context.Context, t *testing.T, pod, reason string) string {
	t.Helper()
	list, err := w.Client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod + ",reason=" + reason})
	if err != nil {
		t.Error(err)
		return ""
	}
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Message)
	}
	return strings.Join(all, "\n")
}

// testClaimKinds: one pod uses a hostPath for writing and for reading, an ephemeral volume, a block device, and a block
// device that is formatted first. The ephemeral volume's claim is removed with the pod.
func (w *world) testClaimKinds(t *testing.T, disk string) {
	ctx := testdeadline.Context(t, time.Minute)
	w.claim(ctx, t, "block", claimOf("1Gi", ", volumeMode: Block"))
	w.claim(ctx, t, "disk", claimOf("1Gi", ", volumeName: pv-disk"))
	w.pod(ctx, t, "kinds", `{volumes: [{name: host, persistentVolumeClaim: {claimName: host}},
    {name: read, persistentVolumeClaim: {claimName: host, readOnly: true}},
    {name: bare, persistentVolumeClaim: {claimName: block}}, {name: disk, persistentVolumeClaim: {claimName: disk}},
    {name: own, ephemeral: {volumeClaimTemplate: {spec: `+claimOf("1Gi", ", volumeName: pv-own")+`}}}],
  securityContext: {fsGroup: 4711},
  containers: [{name: c, volumeMounts: [{name: host, mountPath: /host, subPath: part}, {name: read, mountPath: /read},
      {name: own, mountPath: /own}, {name: disk, mountPath: /disk}], volumeDevices: [{name: bare, devicePath: /dev/xvda}],
    command: [sh, -c, "echo kinds >/host/f; cat /read/part/f; touch /read/g 2>/dev/null || echo read-only;
      echo own >/own/f; stat -c %g /own/f; echo disk | dd of=/dev/xvda conv=fsync 2>/dev/null;
      echo disk >/disk/f; stat -c %g /disk/f; grep -o '/disk ext4' /proc/mounts; exec sleep 1000"]}]}`)
	w.ready(ctx, t, "kinds")
	w.expectLog(ctx, t, "kinds", corev1.PodLogOptions{}, "kinds\nread-only\n4711\n4711\n/disk ext4\n")
	for path, want := range map[string]string{
		filepath.Join(w.place(t, "host"), "part/f"): "kinds\n", filepath.Join(w.place(t, "own"), "f"): "own\n",
	} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	w.typed(ctx, t, "", "delete", "pod", "kinds")
	if text, err := os.ReadFile(disk); err != nil || !strings.HasPrefix(string(text), "disk\n") {
		t.Errorf("the disk begins with %.10q, %v", text, err)
	}
	w.pod(ctx, t, "reads", `{volumes: [{name: disk, persistentVolumeClaim: {claimName: disk, readOnly: true}}],
  containers: [{name: c, volumeMounts: [{name: disk, mountPath: /disk}],
    command: [sh, -c, "cat /disk/f; touch /disk/g 2>/dev/null || echo read-only; exec sleep 1000"]}]}`)
	w.expectLog(ctx, t, "reads", corev1.PodLogOptions{}, "disk\nread-only\n")
	w.Wait(ctx, t, "the end of the pod's own claim", func(ctx context.Context) error {
		_, err := w.Client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "kinds-own", metav1.GetOptions{})
		if !errors.IsNotFound(err) {
			return fmt.Errorf("it still exists: %w", err)
		}
		return nil
	})
}

// testClaimsOfSet: a StatefulSet's pod finds the data of its predecessor.
func (w *world) testClaimsOfSet(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.apply(ctx, t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: data}, spec: {replicas: 1, serviceName: data,
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}, selector: {matchLabels: {app: data}},
  volumeClaimTemplates: [{metadata: {name: v}, spec: `+claimOf("1Gi", "")+`}],
  template: {metadata: {labels: {app: data}}, spec: {terminationGracePeriodSeconds: 1,
    containers: [{name: c, image: IMAGE, volumeMounts: [{name: v, mountPath: /v}],
      command: [sh, -c, "echo run >>/v/f; cat /v/f; exec sleep 1000"]}]}}}}`)
	w.typed(ctx, t, "", "rollout", "status", "statefulset/data", "--timeout=100s")
	w.expectLog(ctx, t, "data-0", corev1.PodLogOptions{}, "run\n")
	w.typed(ctx, t, "", "delete", "pod", "data-0")
	w.typed(ctx, t, "", "rollout", "status", "statefulset/data", "--timeout=100s")
	w.expectLog(ctx, t, "data-0", corev1.PodLogOptions{}, "run\nrun\n")
}
