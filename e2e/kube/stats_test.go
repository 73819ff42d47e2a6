package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// used is the usage of a file system.
type used struct{ UsedBytes, CapacityBytes, AvailableBytes uint64 }

// summary is the part of the kubelet's summary that the tests need.
type summary struct {
	Node struct {
		FS      used
		Runtime struct{ ImageFS, ContainerFS used }
	}
	Pods []podSummary
}

type podSummary struct {
	PodRef     struct{ Name string }
	CPU        struct{ UsageCoreNanoSeconds uint64 }
	Memory     struct{ WorkingSetBytes uint64 }
	Containers []struct {
		Name   string
		CPU    struct{ UsageCoreNanoSeconds uint64 }
		Memory struct{ WorkingSetBytes uint64 }
		Rootfs used
	}
}

// raw reads a path of the node's kubelet.
func (w *world) raw(ctx context.Context, t testing.TB, path string) string {
	t.Helper()
	return w.typed(ctx, t, "", "get", "--raw", "/api/v1/nodes/"+testkube.NodeName+"/proxy"+path)
}

func (w *world) summary(ctx context.Context, t testing.TB) (s summary) {
	t.Helper()
	if err := json.Unmarshal([]byte(w.raw(ctx, t, "/stats/summary")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// testStats: the kubelet has statistics of the node, of a pod and of its container.
func (w *world) testStats(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "stats", `{containers: [{name: c, command: [sh, -c, "dd if=/dev/zero of=/f bs=1M count=4; while :; do :; done"],
  resources: {limits: {cpu: 200m}}}]}`)
	w.ready(ctx, t, "stats")
	w.WaitEvery(ctx, t, time.Second, "figures of the pod", func(ctx context.Context) error {
		s := w.summary(ctx, t)
		i := slices.IndexFunc(s.Pods, func(p podSummary) bool { return p.PodRef.Name == "stats" })
		if i < 0 || len(s.Pods[i].Containers) == 0 {
			return fmt.Errorf("the pod is missing in %+v", s)
		}
		pod, c := s.Pods[i], s.Pods[i].Containers[0]
		if pod.CPU.UsageCoreNanoSeconds == 0 || pod.Memory.WorkingSetBytes == 0 || c.CPU.UsageCoreNanoSeconds == 0 ||
			c.Memory.WorkingSetBytes == 0 || c.Rootfs.UsedBytes < 4<<20 || c.Rootfs.UsedBytes > 8<<20 {
			return fmt.Errorf("the statistics are %+v", pod)
		}
		return nil
	})
	t.Run("top", func(t *testing.T) { w.testTop(ctx, t) })
	t.Run("disks", func(t *testing.T) { w.testDisks(ctx, t) })
}

// testTop reads the values for kubectl top: metrics-server reads memory, and the difference of two readings of the CPU
// time, from this page.
func (w *world) testTop(ctx context.Context, t *testing.T) {
	const pod = `namespace="default",pod="stats"}`
	figures := map[string]float64{
		"node_cpu_usage_seconds_total": 0, "node_memory_working_set_bytes": 0,
		"pod_cpu_usage_seconds_total{" + pod: 0, "pod_memory_working_set_bytes{" + pod: 0,
		`container_cpu_usage_seconds_total{container="c",` + pod: 0, `container_memory_working_set_bytes{container="c",` + pod: 0,
	}
	read := func() map[string]float64 {
		out := map[string]float64{}
		for line := range strings.Lines(w.raw(ctx, t, "/metrics/resource")) {
			if words := strings.Fields(line); len(words) > 1 {
				if _, ok := figures[words[0]]; ok {
					out[words[0]], _ = strconv.ParseFloat(words[1], 64)
				}
			}
		}
		return out
	}
	first := read()
	w.WaitEvery(ctx, t, time.Second, "figures that grow", func(context.Context) error {
		now := read()
		for name := range figures {
			if now[name] <= 0 || strings.Contains(name, "cpu") && now[name] <= first[name] {
				return fmt.Errorf("%s: %v after %v", name, now[name], first[name])
			}
		}
		return nil
	})
}

// testDisks: the disk sizes are correct. The kubelet uses them to remove images and evict pods.
func (w *world) testDisks(ctx context.Context, t *testing.T) {
	s := w.summary(ctx, t)
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Join(w.Dir, "d"), &disk); err != nil {
		t.Fatal(err)
	}
	capacity, free := disk.Blocks*uint64(disk.Bsize), disk.Bavail*uint64(disk.Bsize)
	for name, fs := range map[string]used{
		"images": s.Node.Runtime.ImageFS, "containers": s.Node.Runtime.ContainerFS, "the node's": s.Node.FS,
	} {
		if fs.CapacityBytes != capacity || fs.AvailableBytes > free+free/10 || fs.AvailableBytes < free-free/10 {
			t.Errorf("%s: %+v of %d, free %d", name, fs, capacity, free)
		}
		if fs.UsedBytes == 0 || fs.UsedBytes > capacity {
			t.Errorf("%s: %+v", name, fs)
		}
	}
}

// testEviction: a pod that has written more than its limit is evicted, and its neighbours are not.
func (w *world) testEviction(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 2*time.Minute)
	for name, limit := range map[string]string{evicted: "8Mi", "within": "64Mi", "unlimited": "1Gi"} {
		w.pod(ctx, t, name, `{restartPolicy: Never, containers: [{name: c, resources: {limits: {ephemeral-storage: `+limit+`}},
  command: [sh, -c, "dd if=/dev/zero of=/f bs=1M count=16; sync; exec sleep 1000"]}]}`)
	}
	pod := w.until(ctx, t, evicted, "evicted", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	if pod.Status.Reason != "Evicted" || !strings.Contains(pod.Status.Message, "8Mi") {
		t.Errorf("its status is %s", &pod.Status)
	}
	for _, name := range []string{"within", "unlimited"} {
		w.ready(ctx, t, name)
	}
}

// evicted is the name of the pod that exceeds its limit.
const evicted = "evicted"
