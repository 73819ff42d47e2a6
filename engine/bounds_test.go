package engine

import (
	"slices"
	"testing"

	"github.com/containerd/containerd/api/events"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	shimevents "github.com/bulkhead-project/bulkhead/shim/events"
)

// TestCheckPod checks that invalid requests are refused before anything is created.
func TestCheckPod(t *testing.T) {
	t.Parallel()
	e := bareEngine(t)
	for _, tc := range []struct {
		name string
		r    PodRequest
		code codes.Code
	}{
		{"plain", PodRequest{Key: "k"}, codes.OK},
		{"no key", PodRequest{}, codes.InvalidArgument},
		{"the largest disk", PodRequest{Key: "k", ScratchBytes: MaxScratch}, codes.OK},
		{"a larger disk", PodRequest{Key: "k", ScratchBytes: MaxScratch + 1}, codes.ResourceExhausted},
		{"logs", PodRequest{Key: "k", LogDirectory: t.TempDir()}, codes.OK},
		{"logs below nothing", PodRequest{Key: "k", LogDirectory: "logs"}, codes.InvalidArgument},
		{"logs elsewhere", PodRequest{Key: "k", LogDirectory: "/nowhere/logs"}, codes.InvalidArgument},
	} {
		if err := e.check(&tc.r); codeOf(err) != tc.code {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestDisksOfARequest checks that each image's disk appears once, the root's first.
func TestDisksOfARequest(t *testing.T) {
	t.Parallel()
	r := ContainerRequest{Key: "k", Root: containerv1.Image{ID: "root"}, Stdio: containerv1.Discard{}, Spec: &specs.Spec{}}
	r.Mounts = []containerv1.Mount{
		{Destination: "/a", Source: containerv1.Image{ID: "more"}}, {Destination: "/b", Source: containerv1.Image{ID: "root"}},
		{Destination: "/c", Source: containerv1.Image{ID: "more"}}, {Destination: "/d", Source: containerv1.Text{Content: "text"}},
		{Destination: "/proc", Source: containerv1.System{Type: "proc", Source: "proc"}},
	}
	if err := r.check(); err != nil {
		t.Fatal(err)
	}
	if got := disksOf(r.Root, r.Mounts); !slices.Equal(got, []string{"root", "more"}) {
		t.Errorf("%q", got)
	}
	if got := disksOf(containerv1.Share{Name: "/srv"}, r.Mounts); !slices.Equal(got, []string{"more", "root"}) {
		t.Errorf("%q", got)
	}
	r.Mounts[0].Source = nil
	if err := r.check(); err == nil {
		t.Error("a mount without a source is accepted")
	}
	if _, err := ParsePorts([]string{"0:80", "no port"}); err == nil {
		t.Error("no port is one")
	}
}

// TestConcerns checks that the engine reconciles only after events that change the state of a container.
func TestConcerns(t *testing.T) {
	t.Parallel()
	exit := func(container, id string) *shimv1.Event {
		raw, err := proto.Marshal(&events.TaskExit{ContainerID: container, ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return &shimv1.Event{Topic: shimevents.TopicExit, Event: &anypb.Any{Value: raw}}
	}
	for _, tc := range []struct {
		name string
		e    *shimv1.Event
		want bool
	}{
		{"a container's end", exit("c", "c"), true},
		{"a command's end", exit("c", "e"), false},
		{"an undecodable exit", &shimv1.Event{Topic: shimevents.TopicExit, Event: &anypb.Any{Value: []byte{0xff}}}, true},
		{"a command's start", &shimv1.Event{Topic: shimevents.TopicExecStarted}, false},
		{"anything else", &shimv1.Event{Topic: "/else"}, true},
	} {
		if got := changesState(tc.e); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
