package cri

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
)

// repeatedEnds: calls that stop or remove something also succeed if there is nothing left to do.
func repeatedEnds(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("ends")
	pod := n.podOf(ctx, t, config)
	container := n.sleeper(ctx, t, pod, "c", config, nil)
	for _, ids := range [][2]string{{pod, container}, {pod, container}, {"none", "none"}} {
		_, err := n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: ids[1]})
		expect(t, "StopContainer of "+ids[1], err, codes.OK)
	}
	for range 2 {
		_, err := n.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: container})
		expect(t, "RemoveContainer", err, codes.OK)
	}
	_, err := n.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container})
	expect(t, "the status of a removed container", err, codes.NotFound)
	for range 2 {
		_, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod})
		expect(t, "StopPodSandbox", err, codes.OK)
	}
	_, err = n.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container})
	expect(t, "StopContainer in a stopped pod", err, codes.OK)
	for range 2 {
		_, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod})
		expect(t, "RemovePodSandbox", err, codes.OK)
	}
	_, err = n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod})
	expect(t, "the status of a removed pod", err, codes.NotFound)
}

// lists: several filters apply together, and IDs may be abbreviated.
func lists(ctx context.Context, t *testing.T, n *node) {
	pods, containers := map[string]string{}, map[string]string{}
	for _, name := range []string{"red", "blue"} {
		config := critest.Pod(name)
		config.Labels = map[string]string{"colour": name, "suite": "lists"}
		pods[name] = n.podOf(ctx, t, config)
		containers[name] = n.sleeper(ctx, t, pods[name], name, config, func(c *runtimeapi.ContainerConfig) {
			c.Labels = map[string]string{"colour": name}
		})
	}
	if _, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pods["blue"]}); err != nil {
		t.Fatal(err)
	}
	state := func(s runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
		return &runtimeapi.PodSandboxStateValue{State: s}
	}
	ready, gone := state(runtimeapi.PodSandboxState_SANDBOX_READY), state(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
	suite := map[string]string{"suite": "lists"}
	for _, tt := range []struct {
		name   string
		filter *runtimeapi.PodSandboxFilter
		want   string // newest first
	}{
		{"label", &runtimeapi.PodSandboxFilter{LabelSelector: suite}, "blue red"},
		{"two labels", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"suite": "lists", "colour": "red"}}, "red"},
		{"an unused label", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"suite": "x"}}, ""},
		{"prefix", &runtimeapi.PodSandboxFilter{Id: pods["red"][:13]}, "red"},
		{"ready", &runtimeapi.PodSandboxFilter{State: ready, LabelSelector: suite}, "red"},
		{"not ready", &runtimeapi.PodSandboxFilter{State: gone, LabelSelector: suite}, "blue"},
		{"another's id", &runtimeapi.PodSandboxFilter{Id: pods["red"], State: gone}, ""},
	} {
		res, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: tt.filter})
		var got []string
		for _, p := range res.GetItems() {
			got = append(got, p.GetMetadata().GetName())
		}
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("pods by %s: %v, %v, want %s", tt.name, got, err, tt.want)
		}
	}
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	for _, tt := range []struct {
		name   string
		filter *runtimeapi.ContainerFilter
		want   string
	}{
		{"pod", &runtimeapi.ContainerFilter{PodSandboxId: pods["blue"]}, "blue"},
		{"prefix", &runtimeapi.ContainerFilter{Id: containers["red"][:13]}, "red"},
		{"label", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"colour": "blue"}}, "blue"},
		{"state", &runtimeapi.ContainerFilter{State: running}, "red"},
		{"a pod of another state", &runtimeapi.ContainerFilter{State: running, PodSandboxId: pods["blue"]}, ""},
	} {
		res, err := n.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: tt.filter})
		var got []string
		for _, c := range res.GetContainers() {
			got = append(got, c.GetMetadata().GetName())
		}
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("containers by %s: %v, %v, want %s", tt.name, got, err, tt.want)
		}
	}
	st, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pods["red"][:13]})
	if err != nil || st.GetStatus().GetId() != pods["red"] {
		t.Errorf("a pod by a part of its id: %v, %v", st, err)
	}
}

// attempts: a pod's next attempt is a new pod beside the stopped one.
func attempts(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("tries")
	first := n.podOf(ctx, t, config)
	if again := n.Run(ctx, t, config); again != first {
		t.Errorf("the same attempt is another pod: %s and %s", again, first)
	}
	if _, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: first}); err != nil {
		t.Fatal(err)
	}
	_, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	expect(t, "the attempt of a stopped pod", err, codes.AlreadyExists)
	next := critest.Pod("tries")
	next.Metadata.Attempt = 1
	second := n.podOf(ctx, t, next)
	st, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: second})
	if err != nil || second == first || st.GetStatus().GetMetadata().GetAttempt() != 1 {
		t.Errorf("the next attempt: %v, %v", st, err)
	}
	container := critest.Container("c", "true")
	ids := map[string]bool{}
	for attempt := range uint32(2) {
		container.Metadata.Attempt = attempt
		ids[n.Start(ctx, t, second, container, next)] = true
	}
	if len(ids) != 2 {
		t.Errorf("two attempts of a container: %v", ids)
	}
}

// joined: concurrent requests for one pod share one start, which does not end with a request.
func joined(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("joined")
	config.LogDirectory = n.logs + "/joined"
	hasty, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err := n.RunPodSandbox(hasty, &runtimeapi.RunPodSandboxRequest{Config: config})
	expect(t, "a request in a hurry", err, codes.DeadlineExceeded)
	type result struct {
		id  string
		err error
	}
	results := make(chan result)
	for range 3 {
		go func() {
			res, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			results <- result{res.GetPodSandboxId(), err}
		}()
	}
	var ids []string
	for range 3 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		ids = append(ids, r.id)
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
		t.Errorf("pods %v", ids)
	}
	n.Remove(ctx, t, ids[0])
}

// verbose: the additional fields of a verbose status.
func verbose(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("verbose")
	config.Annotations = map[string]string{"example.org/a": "b"}
	pod := n.podOf(ctx, t, config)
	container := n.sleeper(ctx, t, pod, "c", config, nil)
	expectInfo := func(words ...string) {
		t.Helper()
		res, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true})
		if err != nil || res.GetTimestamp() == 0 || len(res.GetContainersStatuses()) != 1 ||
			res.GetStatus().GetAnnotations()["example.org/a"] != "b" {
			t.Errorf("status %v, %v", res, err)
		}
		for _, word := range words {
			if !strings.Contains(res.GetInfo()["facts"], word) {
				t.Errorf("no %s in %s", word, res.GetInfo())
			}
		}
	}
	expectInfo(`"state":"running"`, `"network":"tap"`, `"name":"address"`, `"vmPID":`)
	res, err := n.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container, Verbose: true})
	if err != nil || res.GetInfo()["sandboxID"] != pod {
		t.Errorf("the container's status %v, %v", res, err)
	}
	plain, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod})
	if err != nil || len(plain.GetInfo()) > 0 {
		t.Errorf("a status that is not verbose has info: %v, %v", plain, err)
	}
	if _, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Fatal(err)
	}
	expectInfo(`"state":"stopped"`, `"name":"stop: network"`)
}
