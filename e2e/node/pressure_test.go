package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testlogind"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// sleeps is a container that does nothing.
const sleeps = `containers: [{name: c, command: [sleep, "1000"]}]`

// fills is a container that uses 200 MiB of memory.
const fills = `volumes: [{name: m, emptyDir: {medium: Memory}}], containers: [{name: c, volumeMounts: [{name: m, mountPath: /m}],
  command: [sh, -c, "head -c 209715200 /dev/zero >/m/f; echo full; exec sleep 1000"]}]`

// TestPressure: a node that runs out of memory, processes or disk reports it, rejects pods that would make it worse,
// and evicts the right pods. A node that shuts down ends its pods first.
func TestPressure(t *testing.T) {
	testturn.SkipUnless(t, 2, 3)
	newPressed(t).testMemory(t)
}

// TestDiskPressure: the same for disk space and for the shutdown.
func TestDiskPressure(t *testing.T) {
	testturn.SkipUnless(t, 0, 3)
	w := newPressed(t)
	t.Run("disk", w.testDisk)
	t.Run("images", w.testImages)
	t.Run("shutdown", w.testShutdown)
}

// newPressed returns a node with its data on a small file system.
func newPressed(t *testing.T) *world {
	t.Helper()
	w := newControlPlane(t)
	w.room(t, 6<<30)
	w.startNode(t)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	if _, err := w.Client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// room mounts a file system for the node's data until the test's end.
func (w *world) room(t *testing.T, size int64) {
	t.Helper()
	file := filepath.Join(w.Dir, "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size), os.Mkdir(w.data(), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", file}, {"mount", "-o", "loop", file, w.data()}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(w.data(), unix.MNT_DETACH); err != nil { // the loop device is removed with it
			t.Error(err)
		}
	})
}

// again restarts the node with other thresholds and flags. Its pods run on.
func (w *world) again(ctx context.Context, t *testing.T, thresholds []string, flags ...string) {
	t.Helper()
	w.node.Stop(t)
	w.thresholds = thresholds
	cmd := w.command("")
	cmd.Args = append(cmd.Args, flags...)
	w.serveAs(cmd)
	w.answers(ctx, t)
	w.WaitNode(ctx, t)
}

// untilNode waits until the Node satisfies is.
func (w *world) untilNode(ctx context.Context, t *testing.T, what string, is func(*corev1.Node) error) {
	t.Helper()
	w.Wait(ctx, t, "the node to be "+what, func(ctx context.Context) error {
		n, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return is(n)
	})
}

// under waits until the node reports a pressure and the standard controllers have set its taint.
func (w *world) under(ctx context.Context, t *testing.T, kind corev1.NodeConditionType, taint string) {
	t.Helper()
	w.untilNode(ctx, t, "under "+string(kind), func(n *corev1.Node) error {
		reported := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue
		})
		kept := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == taint && t.Effect == corev1.TaintEffectNoSchedule
		})
		if !reported || !kept {
			return fmt.Errorf("it has %v, %v", n.Status.Conditions, n.Spec.Taints)
		}
		return nil
	})
}

// evicted waits until a pod is evicted with that message, and for the event about it.
func (w *world) evicted(ctx context.Context, t *testing.T, name, why string) *corev1.Pod {
	t.Helper()
	pod := w.until(ctx, t, name, "evicted", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	if c := condition(pod, corev1.DisruptionTarget); pod.Status.Reason != "Evicted" || !strings.HasPrefix(pod.Status.Message, why) ||
		c.Status != corev1.ConditionTrue || c.Reason != corev1.PodReasonTerminationByKubelet {
		t.Errorf("%s: %s: %s, %+v", name, pod.Status.Reason, pod.Status.Message, c)
	}
	w.Wait(ctx, t, "the event of "+name, func(ctx context.Context) error {
		if got := w.reasons(ctx, t, name); !slices.Contains(got, "Evicted") {
			return fmt.Errorf("there are %v", got)
		}
		return nil
	})
	return pod
}

// run fails the test if one of the pods was restarted or no longer runs.
func (w *world) run(ctx context.Context, t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		now, err := w.Client.CoreV1().Pods(ns).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil || now.UID != p.UID || now.Status.Phase != corev1.PodRunning || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: %v, %s", p.Name, err, &now.Status)
		}
	}
}

// testMemory: if memory is short, pods above their requests are evicted first, less important ones before others, then
// the rest. If processes are short, any pod is evicted. Critical and static pods never are.
func (w *world) testMemory(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.pod(ctx, t, "greedy", "{"+fills+"}")
	w.pod(ctx, t, "important", "{priorityClassName: high, "+fills+"}")
	w.pod(ctx, t, "modest", `{containers: [{name: c, command: [sleep, "1000"], resources: {requests: {memory: 2Gi}}}]}`)
	w.pod(ctx, t, "critical", "{priorityClassName: system-node-critical, "+sleeps+"}")
	w.manifest(t, "fixed", "words", "")
	defer w.removeManifests(t)
	static := "fixed-" + testkube.NodeName
	w.expectLog(ctx, t, "greedy", corev1.PodLogOptions{}, "full\n")
	w.expectLog(ctx, t, "important", corev1.PodLogOptions{}, "full\n")
	w.ready(ctx, t, "modest")
	critical, fixed := w.ready(ctx, t, "critical"), w.ready(ctx, t, static)

	w.again(ctx, t, []string{"memory.available<99%"})
	w.under(ctx, t, corev1.NodeMemoryPressure, corev1.TaintNodeMemoryPressure)
	const memory = "The node was low on resource: memory. Threshold quantity: "
	greedy := w.evicted(ctx, t, "greedy", memory)
	w.pod(ctx, t, "late", "{nodeName: node, "+sleeps+"}")
	late := w.until(ctx, t, "late", "rejected", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	if late.Status.Reason != "Evicted" || !strings.Contains(late.Status.Message, "MemoryPressure") {
		t.Errorf("%s: %s", late.Status.Reason, late.Status.Message)
	}
	important := w.evicted(ctx, t, "important", memory)
	modest := w.evicted(ctx, t, "modest", memory)
	if first, second, third := at(greedy), at(important), at(modest); !first.Before(second) || !second.Before(third) {
		t.Errorf("evicted at %v, %v, %v", first, second, third)
	}
	w.run(ctx, t, critical, fixed)

	w.again(ctx, t, nil)
	w.pod(ctx, t, "counted", "{nodeName: node, tolerations: [{operator: Exists}], "+sleeps+"}")
	w.ready(ctx, t, "counted")
	w.again(ctx, t, []string{"pid.available<1G"})
	w.under(ctx, t, corev1.NodePIDPressure, corev1.TaintNodePIDPressure)
	w.evicted(ctx, t, "counted", "The node was low on resource: pids. Threshold quantity: ")
	w.run(ctx, t, critical, fixed)
	w.again(ctx, t, nil)
	w.untilNode(ctx, t, "free of pressure", func(n *corev1.Node) error {
		for _, taint := range n.Spec.Taints {
			if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
				return fmt.Errorf("it has %v", n.Spec.Taints)
			}
		}
		return nil
	})
	w.run(ctx, t, critical, fixed)
}

// at returns the time of a pod's eviction.
func at(pod *corev1.Pod) time.Time {
	return condition(pod, corev1.DisruptionTarget).LastTransitionTime.Time
}

// left returns the free space of the node's disk, in bytes.
func (w *world) left(t *testing.T) uint64 {
	t.Helper()
	disk, err := host.DiskOf(w.data())
	if err != nil {
		t.Fatal(err)
	}
	return disk.Available
}

// testDisk: if disk space is short, an unused image is removed first. Then the pod that has written most is evicted.
// Its disk space is freed, so the other pod stays.
func (w *world) testDisk(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	const written = 200 << 20
	w.again(ctx, t, nil)
	image := w.unused(ctx, t)
	spare := w.pod(ctx, t, "spare", "{"+sleeps+"}")
	w.pod(ctx, t, "filler", fmt.Sprintf(`{containers: [{name: c,
  command: [sh, -c, "head -c %d /dev/urandom >/f; sync; echo done; exec sleep 1000"]}]}`, written))
	w.expectLog(ctx, t, "filler", corev1.PodLogOptions{}, "done\n")
	w.ready(ctx, t, "spare")
	full := w.left(t)
	w.again(ctx, t, []string{fmt.Sprintf("nodefs.available<%d", full+written/2)}, "--minimum-image-ttl-duration", "0s")
	filler := w.evicted(ctx, t, "filler", "The node was low on resource: ephemeral-storage. Threshold quantity: ")
	if !strings.Contains(filler.Status.Message, "Container c was using ") {
		t.Errorf("it was evicted because of %s", filler.Status.Message)
	}
	w.under(ctx, t, corev1.NodeDiskPressure, corev1.TaintNodeDiskPressure)
	w.without(ctx, t, image)
	w.Wait(ctx, t, "the disk to be freed", func(context.Context) error {
		if now := w.left(t); now < full+written*3/4 {
			return fmt.Errorf("%d bytes are left, and %d were before", now, full)
		}
		return nil
	})
	w.run(ctx, t, spare)
	w.expectLog(ctx, t, "filler", corev1.PodLogOptions{}, "done\n") // its log stays
}

// unused adds an unused image to the node.
func (w *world) unused(ctx context.Context, t *testing.T) (image string) {
	t.Helper()
	config, err := testimage.BusyboxImage(t).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.Config.Labels = map[string]string{"another": "one"} // different from the other pods' image
	other, err := mutate.Config(testimage.BusyboxImage(t), config.Config)
	if err != nil {
		t.Fatal(err)
	}
	image, _ = w.registry.Push(t, fmt.Sprintf("other:%d", time.Now().UnixNano()), other)
	w.pod(ctx, t, "once", fmt.Sprintf(`{restartPolicy: Never, containers: [{name: c, image: %q, command: ["true"]}]}`, image))
	w.until(ctx, t, "once", "done", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	w.typed(ctx, t, "", "delete", "pod", "once")
	return image
}

// listsImage reports whether a Node lists an image.
func listsImage(n *corev1.Node, image string) bool {
	return slices.ContainsFunc(n.Status.Images, func(i corev1.ContainerImage) bool { return slices.Contains(i.Names, image) })
}

// without waits until the node has removed the image, and lists the other pods' image but not this one.
func (w *world) without(ctx context.Context, t *testing.T, image string) {
	t.Helper()
	w.Wait(ctx, t, "the image to be removed", func(context.Context) error {
		log, err := os.ReadFile(filepath.Join(w.Dir, "node.log"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "removed an unused image") && strings.Contains(line, image) {
				return nil
			}
		}
		return errors.New("the log does not say so")
	})
	w.untilNode(ctx, t, "without an image", func(n *corev1.Node) error {
		if listsImage(n, image) || !listsImage(n, w.image) {
			return fmt.Errorf("it has %v", n.Status.Images)
		}
		return nil
	})
}

// testImages: an unused image is removed when the disk is fuller than allowed, even without pressure.
func (w *world) testImages(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.again(ctx, t, nil)
	image := w.unused(ctx, t)
	uses := w.pod(ctx, t, "uses", "{"+sleeps+"}")
	w.ready(ctx, t, "uses")
	w.again(ctx, t, nil, "--image-gc-high-threshold", "1", "--image-gc-low-threshold", "0", "--minimum-image-ttl-duration", "0s")
	w.without(ctx, t, image)
	w.run(ctx, t, uses)
}

// testShutdown: before the host shuts down, its pods are ended, critical ones last, and reported as such. New pods are
// rejected. After the shutdown is cancelled, pods are accepted again.
func (w *world) testShutdown(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	address := testlogind.Bus(t)
	logind := testlogind.Start(t, address, time.Minute, false)
	w.bus = address
	defer func() { w.bus = "" }()
	w.again(ctx, t, nil, "--shutdown-grace-period", "20s", "--shutdown-grace-period-critical-pods", "8s")
	lock := logind.Lock(ctx, t)
	const ends = `terminationGracePeriodSeconds: 5, containers: [{name: c,
  command: [sh, -c, "trap 'sleep 1; echo ended; exit 0' TERM; echo up; sleep 1000 & wait"]}]`
	w.pod(ctx, t, "plain", "{"+ends+"}")
	w.pod(ctx, t, "critical", "{priorityClassName: system-node-critical, "+ends+"}")
	for _, name := range []string{"plain", "critical"} {
		w.expectLog(ctx, t, name, corev1.PodLogOptions{}, "up\n")
	}
	began := time.Now()
	logind.Prepare(t, true)
	lock.Released(ctx, t)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the shutdown was delayed for %v", took)
	}
	var finished []time.Time
	for _, name := range []string{"plain", "critical"} {
		pod := w.until(ctx, t, name, "ended", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
		st := pod.Status.ContainerStatuses[0].State.Terminated
		if pod.Status.Reason != "Terminated" || pod.Status.Message != "Pod was terminated in response to imminent node shutdown." ||
			st == nil || st.ExitCode != 0 {
			t.Fatalf("%s: %s", name, &pod.Status)
		}
		w.expectLog(ctx, t, name, corev1.PodLogOptions{}, "up\nended\n")
		finished = append(finished, st.FinishedAt.Time)
	}
	if !finished[0].Before(finished[1]) {
		t.Errorf("the critical one ended at %v, the other one at %v", finished[1], finished[0])
	}
	w.untilNode(ctx, t, "not ready", func(n *corev1.Node) error {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && c.Message == "node is shutting down" {
				return nil
			}
		}
		return fmt.Errorf("it has %v", n.Status.Conditions)
	})
	w.pod(ctx, t, "late", "{nodeName: node, tolerations: [{operator: Exists}], "+sleeps+"}")
	late := w.until(ctx, t, "late", "rejected", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	if late.Status.Reason != "NodeShutdown" {
		t.Errorf("%s: %s", late.Status.Reason, late.Status.Message)
	}
	logind.Prepare(t, false)
	logind.Lock(ctx, t)
	w.WaitNode(ctx, t)
	w.pod(ctx, t, "after", "{"+sleeps+"}")
	w.ready(ctx, t, "after")
}
