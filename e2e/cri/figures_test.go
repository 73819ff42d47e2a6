package cri

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
)

// events: each event of a pod and its container is sent once, in order.
func events(ctx context.Context, t *testing.T, n *node) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := n.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err == nil {
		_, err = events.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	config := critest.Pod("events")
	pod := n.podOf(ctx, t, config)
	container := n.Start(ctx, t, pod, critest.Container("c", "sh", "-c", "exit 7"), config)
	n.ended(ctx, t, container)
	n.Remove(ctx, t, pod)
	want := "pod STARTED, c CREATED, c STARTED, c STOPPED 7, pod STOPPED, c DELETED, pod DELETED"
	var got []string
	for len(got) < strings.Count(want, ",")+1 {
		e, err := events.Recv()
		if err != nil {
			t.Fatalf("%s, and then %v", strings.Join(got, ", "), err)
		}
		what := "pod "
		if e.GetContainerId() == container {
			what = "c "
		}
		what += strings.TrimSuffix(strings.TrimPrefix(e.GetContainerEventType().String(), "CONTAINER_"), "_EVENT")
		if what == "c STOPPED" && e.GetContainersStatuses()[0].GetExitCode() == 7 {
			what += " 7"
		}
		if e.GetPodSandboxStatus().GetId() != pod || e.GetCreatedAt() == 0 {
			t.Errorf("event %v", e)
		}
		got = append(got, what)
	}
	if strings.Join(got, ", ") != want {
		t.Errorf("events %s, want %s", strings.Join(got, ", "), want)
	}
}

// stats: the statistics of pods and containers, single and filtered.
func stats(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("stats")
	config.Labels = map[string]string{"suite": "stats"}
	pod := n.podOf(ctx, t, config)
	other := critest.Pod("other")
	n.podOf(ctx, t, other)
	ids := map[string]string{}
	for _, name := range []string{"busy", "idle"} {
		ids[name] = n.sleeper(ctx, t, pod, name, config, func(c *runtimeapi.ContainerConfig) {
			c.Labels = map[string]string{"name": name}
		})
	}
	n.Sh(ctx, t, ids["busy"], "ping -c 1 10.88.0.1; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo words >/file")
	one, err := n.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: ids["busy"]})
	s := one.GetStats()
	if err != nil || s.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 || s.GetMemory().GetWorkingSetBytes().GetValue() == 0 ||
		s.GetWritableLayer().GetUsedBytes().GetValue() == 0 || s.GetAttributes().GetMetadata().GetName() != "busy" {
		t.Errorf("a container: %v, %v", one, err)
	}
	_, err = n.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: "none"})
	expect(t, "stats of a missing container", err, codes.NotFound)
	for _, tt := range []struct {
		name   string
		filter *runtimeapi.ContainerStatsFilter
		want   int
	}{
		{"pod", &runtimeapi.ContainerStatsFilter{PodSandboxId: pod}, 2},
		{"container", &runtimeapi.ContainerStatsFilter{Id: ids["idle"][:13]}, 1},
		{"label", &runtimeapi.ContainerStatsFilter{PodSandboxId: pod, LabelSelector: map[string]string{"name": "idle"}}, 1},
		{"nobody", &runtimeapi.ContainerStatsFilter{Id: ids["idle"], PodSandboxId: "none"}, 0},
	} {
		res, err := n.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: tt.filter})
		if err != nil || len(res.GetStats()) != tt.want {
			t.Errorf("containers by %s: %v, %v", tt.name, res, err)
		}
	}
	whole, err := n.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: pod})
	l := whole.GetStats().GetLinux()
	if err != nil || len(l.GetContainers()) != 2 || l.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 ||
		l.GetMemory().GetWorkingSetBytes().GetValue() == 0 || l.GetProcess().GetProcessCount().GetValue() < 2 ||
		l.GetNetwork().GetDefaultInterface().GetTxBytes().GetValue() == 0 {
		t.Errorf("a pod: %v, %v", whole, err)
	}
	for _, f := range []*runtimeapi.PodSandboxStatsFilter{{Id: pod[:13]}, {LabelSelector: config.Labels}} {
		res, err := n.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: f})
		if err != nil || len(res.GetStats()) != 1 || res.GetStats()[0].GetAttributes().GetId() != pod {
			t.Errorf("pods by %v: %v, %v", f, res, err)
		}
	}
}

// metrics: each metric of a pod and of a container has a descriptor and its labels.
func metrics(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("metrics")
	pod := n.podOf(ctx, t, config)
	container := n.sleeper(ctx, t, pod, "c", config, nil)
	n.Sh(ctx, t, container, "ping -c 1 10.88.0.1")
	described, err := n.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]int{}
	for _, d := range described.GetDescriptors() {
		labels[d.GetName()] = len(d.GetLabelKeys())
		if d.GetHelp() == "" {
			t.Errorf("%s has no help text", d.GetName())
		}
	}
	res, err := n.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(res.GetPodMetrics(), func(p *runtimeapi.PodSandboxMetrics) bool { return p.GetPodSandboxId() == pod })
	if i < 0 || len(res.GetPodMetrics()[i].GetContainerMetrics()) != 1 {
		t.Fatalf("metrics %v", res)
	}
	one := res.GetPodMetrics()[i].GetContainerMetrics()[0]
	if one.GetContainerId() != container {
		t.Errorf("metrics of %s", one.GetContainerId())
	}
	seen := map[string]uint64{}
	for _, m := range append(one.GetMetrics(), res.GetPodMetrics()[i].GetMetrics()...) {
		seen[m.GetName()] = max(seen[m.GetName()], m.GetValue().GetValue())
		if keys, ok := labels[m.GetName()]; !ok || len(m.GetLabelValues()) != keys {
			t.Errorf("metric %v has %d labels of %d", m, len(m.GetLabelValues()), keys)
		}
	}
	for _, name := range []string{
		"container_memory_working_set_bytes", "container_start_time_seconds", "container_network_receive_bytes_total",
	} {
		if seen[name] == 0 {
			t.Errorf("%s is 0 or missing: %v", name, seen)
		}
	}
}
