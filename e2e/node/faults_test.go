package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	door "github.com/bulkhead-project/bulkhead/door/node"
	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/door/node/registration"
	noderuntime "github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/runtime/local"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/testcri"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// requests maps kinds of requests that a node sends to the API server to their verbs and resources.
var requests = map[string][]string{
	"status":    {"PATCH pods/status"},
	"deletion":  {"DELETE pods"},
	"lease":     {"GET leases", "POST leases", "PUT leases"},
	"events":    {"POST events", "PATCH events"},
	"token":     {"POST serviceaccounts/token"},
	"register":  {"POST nodes"},
	"node":      {"PATCH nodes", "PATCH nodes/status"},
	"configmap": {"GET configmaps", "WATCH configmaps"},
	"secret":    {"GET secrets", "WATCH secrets"},
	"service":   {"GET services", "WATCH services"},
	"pods":      {"GET pods", "WATCH pods"},
	"nodes":     {"GET nodes", "WATCH nodes"},
	"all":       nil,
}

// illnesses returns the faults that are tried with a kind.
func illnesses(kind string) []string {
	if slices.ContainsFunc(requests[kind], func(what string) bool { return strings.HasPrefix(what, "WATCH ") }) {
		return []string{busy, broken, silent, away, ends, expires}
	}
	return []string{conflicts, busy, broken, silent, away}
}

// illFor is the duration of the API server's fault. mostRequests is the limit of requests of one kind during it: a few
// at first, then at growing intervals.
func illFor(kind string) time.Duration {
	if testturn.Long() || kind == "node" || kind == "lease" { // requested every ten seconds
		return 15 * time.Second
	}
	return 4 * time.Second
}

const mostRequests = 40

// most returns the limit of requests of one kind during a fault. After its first ten tries, a watch is retried at most
// twice a second. A pod here refers to two ConfigMaps.
func most(kind, which string) int {
	if strings.HasPrefix(which, "WATCH ") {
		return 2 * (10 + 2*int(illFor(kind)/time.Second) + 1)
	}
	return mostRequests
}

// always maps kinds to a fault that is tried in every run.
var always = map[string]string{"pods": away, "status": conflicts}

// today returns today's faults of a kind: two a day, one a day for slow kinds, and those in always. If the whole table
// is requested, it returns all.
func today(i int, kind string) (out []string) {
	day, all := testturn.Day(), illnesses(kind)
	if testturn.Long() || strings.Contains(strings.Join(os.Args, " "), "TestFaults/") {
		return all
	}
	out = append(out, all[(day+i)%len(all)])
	if illFor(kind) < 10*time.Second {
		out = append(out, all[(day+i+len(all)/2)%len(all)])
	}
	if one := always[kind]; one != "" && !slices.Contains(out, one) {
		out = append(out, one)
	}
	return out
}

// TestFaults: while the API server fails for one kind of request or for all, a node's pods run on and its requests
// become rare. After recovery, the node catches up: no pod runs twice and no end is lost.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane; make test runs it in its second pass")
	}
	c := testkube.Start(t)
	ctx := testdeadline.Context(t, 4*time.Minute)
	c.Wait(ctx, t, "the namespace's service account", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	labels := metav1.ObjectMeta{Name: "there"}
	if _, err := c.Client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: labels}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: labels}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i, kind := range slices.Sorted(maps.Keys(requests)) {
		all.Go(func() {
			for _, fault := range today(i, kind) {
				t.Run(kind+"/"+fault, func(t *testing.T) { theFault(ctx, t, c, kind, fault) })
			}
		})
	}
	all.Go(func() { t.Run("one name", func(t *testing.T) { twoOfOneName(ctx, t, c) }) })
	all.Wait()
}

// counted is a runtime that counts how often each pod was created.
type counted struct {
	*testcri.Runtime
	mu   sync.Mutex
	made map[string]int // by UID
}

// RunPodSandbox counts the created pods.
func (c *counted) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	c.mu.Lock()
	c.made[config.Metadata.Uid]++
	c.mu.Unlock()
	return c.Runtime.RunPodSandbox(ctx, config, handler)
}

// counting is a door's runtime over a counted one.
type counting struct {
	fake
	of *counted
}

// Backend implements noderuntime.Runtime.
func (c counting) Backend() noderuntime.Backend {
	return noderuntime.Backend{Runtime: c.of, Images: c.of}
}

// illNode is a node without VMs behind an API server with injected faults.
type illNode struct {
	*testkube.Cluster
	name    string
	dir     string // below the cluster's; "" means name
	boot    string // the reported boot ID; "" means the real one
	api     *ill
	runtime *counted
}

func newIllNode(c *testkube.Cluster, name string) *illNode {
	return &illNode{Cluster: c, name: name, api: &ill{open: map[*cut]string{}, counts: map[string]int{}},
		runtime: &counted{Runtime: testcri.New(time.Millisecond), made: map[string]int{}}}
}

// start starts the node, which ends with ctx, and waits until it is registered.
func (n *illNode) start(ctx context.Context, t *testing.T) (ended <-chan error) {
	t.Helper()
	config := rest.CopyConfig(n.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + n.name, Groups: []string{"system:nodes"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { n.api.next = next; return n.api })
	done, ready := make(chan error, 1), make(chan struct{})
	dir := filepath.Join(n.Dir, cmp.Or(n.dir, n.name))
	go func() {
		done <- door.Run(ctx, door.Options{
			Roots: dirs.Roots{Data: filepath.Join(dir, "d"), State: filepath.Join(dir, "s")}, ClusterDomain: "cluster.local",
			Options: registration.Options{
				Config: config, Name: n.name, IP: testkube.NodeIP, MaxPods: 20, Listen: "127.0.0.1:0",
				Measure: func() (host.Facts, error) {
					facts, err := host.Measure()
					facts.BootID = cmp.Or(n.boot, facts.BootID)
					return facts, err
				},
			},
			Runtime: func(context.Context, local.Options) (noderuntime.Runtime, error) {
				return counting{fake{n.runtime.Runtime}, n.runtime}, nil
			},
			Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		}, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("the node ended: %v", err)
	case <-ctx.Done():
		t.Fatal("the node does not start")
	}
	return done
}

// pod creates a pod that is bound to the node and needs every kind of API request.
func (n *illNode) pod(ctx context.Context, t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n.name + "-" + name}}
	there := corev1.LocalObjectReference{Name: "there"}
	p.Spec = corev1.PodSpec{
		NodeName: n.name, TerminationGracePeriodSeconds: new(int64(1)),
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "c", Image: "here:1", EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: there}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: there}},
		}}},
	}
	made, err := n.Client.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// ready waits until a pod is ready.
func (n *illNode) ready(ctx context.Context, t *testing.T, p *corev1.Pod) (now *corev1.Pod) {
	t.Helper()
	n.Wait(ctx, t, p.Name+" to be ready", func(ctx context.Context) (err error) {
		now, err = n.Client.CoreV1().Pods(ns).Get(ctx, p.Name, metav1.GetOptions{})
		if err == nil && (now.UID != p.UID || condition(now, corev1.PodReady).Status != corev1.ConditionTrue) {
			err = fmt.Errorf("pod %s: %s", now.UID, &now.Status)
		}
		return err
	})
	return now
}

// theFault tries one fault for one kind of request, on a node of its own.
func theFault(ctx context.Context, t *testing.T, c *testkube.Cluster, kind, fault string) {
	ctx, cancel := within(ctx, t)
	defer cancel()
	n := newIllNode(c, "ill-"+kind+"-"+fault)
	ended := n.start(ctx, t)
	n.injectFault(ctx, t, kind, fault)
	own := metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name}
	err := c.Client.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, own)
	if err != nil {
		t.Error(err)
	}
	n.Wait(ctx, t, "the end of all pods", func(ctx context.Context) error {
		left, err := n.runtime.ListPodSandbox(ctx, nil)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d sandboxes are left", len(left))
		}
		return err
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the node's end: %v", err)
	}
}

// within returns ctx with the deadline of one fault.
func within(ctx context.Context, t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	own, cancel := context.WithCancel(testdeadline.Context(t, time.Minute))
	stop := context.AfterFunc(ctx, cancel)
	return own, func() { stop(); cancel() }
}

// injectFault injects the fault. Meanwhile one pod is created and another one is deleted.
func (n *illNode) injectFault(ctx context.Context, t *testing.T, kind, fault string) {
	t.Helper()
	pods := n.Client.CoreV1().Pods(ns)
	keeps, goes := n.pod(ctx, t, "keeps"), n.pod(ctx, t, "goes")
	n.ready(ctx, t, keeps)
	n.ready(ctx, t, goes)
	n.api.fall(fault, requests[kind]...)
	if kind == "register" {
		if err := n.Client.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	if kind == "node" {
		const remove = `{"metadata": {"labels": {"kubernetes.io/hostname": null}}}`
		_, err := n.Client.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, []byte(remove), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	comes := n.pod(ctx, t, "comes")
	if err := pods.Delete(ctx, goes.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	select {
	case <-time.After(illFor(kind)):
	case <-ctx.Done():
	}
	if left, err := n.runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(keeps.UID)},
	}); err != nil || len(left) != 1 || left[0].State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the pod that was there has %v, %v", left, err)
	}
	sum := 0
	for which, times := range n.api.recover() {
		t.Logf("%-28s %d times in %v", which, times, illFor(kind))
		if sum += times; times > most(kind, which) {
			t.Errorf("%s was requested %d times in %v", which, times, illFor(kind))
		}
	}
	if sum == 0 && kind != "service" {
		t.Error("there were no requests")
	}
	came := n.ready(ctx, t, comes)
	n.Wait(ctx, t, "the end of "+goes.Name, func(ctx context.Context) error {
		if now, err := pods.Get(ctx, goes.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it still exists: %w, %s", err, &now.Status)
		}
		return nil
	})
	n.Wait(ctx, t, "the node to be reported", func(ctx context.Context) error {
		node, err := n.Client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && node.Labels[corev1.LabelHostname] == n.name {
				return nil
			}
		}
		return fmt.Errorf("it has %v, %v", node.Labels, node.Status.Conditions)
	})
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	for _, p := range []*corev1.Pod{keeps, goes, came} {
		if times := n.runtime.made[string(p.UID)]; times != 1 {
			t.Errorf("%s was created %d times", p.Name, times)
		}
	}
	if restarts := came.Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("%s was started %d times", came.Name, restarts+1)
	}
}

// twoOfOneName: two hosts with the same node name each report the other by an event of the Node. A restarted node
// reports nothing.
func twoOfOneName(ctx context.Context, t *testing.T, c *testkube.Cluster) {
	ctx, cancel := within(ctx, t)
	defer cancel()
	reports := func(ctx context.Context) (n int) {
		list, err := c.Client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=NodeNameClash"})
		if err != nil {
			t.Error(err)
			return 0
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == "twin" && e.Type == corev1.EventTypeWarning {
				n += int(max(e.Count, 1))
			}
		}
		return n
	}
	once := func() { // the second time it is the next process of the same host
		alone, end := context.WithCancel(ctx)
		defer end()
		ended := newIllNode(c, "twin").start(alone, t)
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	once()
	once()
	first, second := newIllNode(c, "twin"), newIllNode(c, "twin")
	second.dir, second.boot = "twin-2", "00000000-0000-0000-0000-000000000002"
	ended := []<-chan error{first.start(ctx, t)}
	if n := reports(ctx); n != 0 {
		t.Errorf("before another node exists: reported %d times", n)
	}
	ended = append(ended, second.start(ctx, t))
	c.Wait(ctx, t, "both nodes to report each other", func(ctx context.Context) error {
		if n := reports(ctx); n < 2 {
			return fmt.Errorf("reported %d times", n)
		}
		return nil
	})
	cancel()
	for _, one := range ended {
		if err := <-one; err != nil {
			t.Error(err)
		}
	}
}
