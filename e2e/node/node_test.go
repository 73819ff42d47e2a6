package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestNode: a cluster can manage the pods of this node like pods of a node with a kubelet. Workloads that TestKubelet of
// e2e/kube also has take turns with it.
func TestNode(t *testing.T) {
	w := newWorld(t)
	t.Run("node", w.testObject)
	t.Run("guard", w.testGuard)
	t.Run("pod", w.testPod)
	t.Run("admission", w.testAdmission)
	t.Run("same name", w.testSameName)
	t.Run("deleted while starting", w.testDeletedWhileStarting)
	t.Run("deleted while initialising", w.testDeletedWhileInitialising)
	t.Run("late secret", w.testLateSecret)
	t.Run("readiness gates", w.testReadinessGates)
	t.Run("silence begun", w.startSilence) // its pod stays, so count pods before
	t.Run("streams", w.testStreams)
	t.Run("debug", w.testDebug)
	t.Run("services", w.testServices)
	t.Run("network", w.testNetwork)
	t.Run("changes", w.testChanges)
	t.Run("silence", w.testSilence)
	t.Run("eviction", w.testEviction)
	t.Run("figures", w.testFigures)
	t.Run("top", w.testTop)
	t.Run("runtime classes", w.testRuntimeClasses)
	t.Run("priority classes", w.testPriorityClasses)
	t.Run("claims", w.testClaims)
	t.Run("static", w.testStatic)
	t.Run("csi", w.testCSI)
	t.Run("deployment", testturn.In(0, 2, w.testDeployment))
	t.Run("job", testturn.In(1, 2, w.testJob))
	t.Run("daemonset", w.testDaemonSet)
	t.Run("cronjob begun", w.startCronJob) // its pods stay, so count pods before
	t.Run("rollout", testturn.In(1, 2, w.testRollout))
	t.Run("statefulset", testturn.In(0, 2, w.testStatefulSet))
	t.Run("cronjob", w.testCronJob)
	t.Run("drain", w.testDrain)
	t.Run("restart", w.testRestart)
	t.Run("twice", w.testTwice)
	t.Run("without the API", testturn.In(0, 2, w.testWithoutAPI))
	t.Run("started without the API", testturn.In(1, 2, w.testBlindStart))
	t.Run("node deleted", w.testNodeDeleted)
	t.Run("kill", w.testKill)
}

// testObject: the node registers like a kubelet, and its lease is renewed.
func (w *world) testObject(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	node, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node.Labels[corev1.LabelOSStable] != "linux" || node.Labels[corev1.LabelHostname] != testkube.NodeName {
		t.Errorf("labels: %v", node.Labels)
	}
	registered(t, node)
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
	} {
		if has, can := node.Status.Capacity[name], node.Status.Allocatable[name]; has.Sign() <= 0 || can.Sign() <= 0 {
			t.Errorf("%s: capacity %s, allocatable %s", name, &has, &can)
		}
	}
	info := node.Status.NodeInfo
	if info.KernelVersion == "" || info.BootID == "" || !strings.HasPrefix(info.KubeletVersion, "v1.") ||
		!strings.HasPrefix(info.ContainerRuntimeVersion, "bulkhead://") {
		t.Errorf("nodeInfo: %+v", info)
	}
	lease, err := w.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil || *lease.Spec.LeaseDurationSeconds != 40 || time.Since(lease.Spec.RenewTime.Time) > 40*time.Second {
		t.Errorf("lease: %v, %v", lease, err)
	}
}

// registered: a Node has the labels and the taint from the flags.
func registered(t *testing.T, node *corev1.Node) {
	t.Helper()
	if node.Labels["test"] != "yes" || node.Labels["disk"] != "ssd" {
		t.Errorf("labels: %v", node.Labels)
	}
	taint := corev1.Taint{Key: "vm", Value: "only", Effect: corev1.TaintEffectPreferNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(one corev1.Taint) bool { return one.MatchTaint(&taint) && one.Value == taint.Value }) {
		t.Errorf("taints: %v", node.Spec.Taints)
	}
}

// testPod: a pod that the scheduler has bound runs, is reported, has logs and executes commands. When it is deleted,
// first its VM is removed and then its object.
func (w *world) testPod(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "one", `{containers: [{name: c, command: [sh, -c, "echo words; exec sleep 1000"], resources: {requests: {cpu: 10m}}}]}`)
	pod := w.ready(ctx, t, "one")
	st := pod.Status
	if st.Phase != corev1.PodRunning || st.PodIP == "" || st.HostIP != testkube.NodeIP || st.QOSClass != corev1.PodQOSBurstable ||
		st.StartTime == nil || len(st.ContainerStatuses) != 1 || !st.ContainerStatuses[0].Ready || st.ContainerStatuses[0].ImageID == "" {
		t.Errorf("status: %s", &st)
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodReadyToStartContainers,
	} {
		if c := condition(pod, kind); c.Status != corev1.ConditionTrue {
			t.Errorf("condition %s: %+v", kind, c)
		}
	}
	w.expectLog(ctx, t, "one", corev1.PodLogOptions{}, "words\n")
	out, errs, err := w.exec(ctx, "one", corev1.PodExecOptions{Command: []string{"sh", "-c", "cat; echo two >&2; exit 3"}},
		strings.NewReader("one\n"))
	if out != "one\n" || errs != "two\n" || err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("exec: %q, %q, %v", out, errs, err)
	}
	if got := w.typed(ctx, t, "", "exec", "one", "--", "cat", "/etc/hostname"); got != "one\n" {
		t.Errorf("kubectl exec: %q", got)
	}
	token := w.typed(ctx, t, "", "exec", "one", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	if strings.Count(token, ".") != 2 {
		t.Errorf("its token has %d bytes", len(token))
	}
	w.Wait(ctx, t, "the events", func(ctx context.Context) error {
		got := w.reasons(ctx, t, "one")
		for _, want := range []string{"Scheduled", "Pulled", "Created", "Started"} {
			if !slices.Contains(got, want) {
				return fmt.Errorf("no %s in %v", want, got)
			}
		}
		return nil
	})
	if n := w.vms(t); n != 1 {
		t.Errorf("%d VMs", n)
	}
	w.typed(ctx, t, "", "delete", "pod", "one", "--grace-period=1") // waits for its end
	if _, err := w.Client.CoreV1().Pods(ns).Get(ctx, "one", metav1.GetOptions{}); !errors.IsNotFound(err) {
		t.Errorf("deleted: %v", err)
	}
	if n := w.vms(t); n != 0 {
		t.Errorf("%d VMs are left", n)
	}
}
