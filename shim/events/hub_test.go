package events_test

import (
	"errors"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/api/events"
	"google.golang.org/protobuf/proto"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/events"
)

func TestSlowSubscriberIsCutOff(t *testing.T) {
	var hub events.Hub
	slow, err := hub.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	quick, err := hub.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	for i := range events.Queue + 10 {
		hub.Publish(&shimv1.Event{Topic: "x"})
		if i%2 == 0 {
			<-quick.Events
		}
	}
	n := 0
	for range slow.Events {
		n++
	}
	if n != events.Queue || !errors.Is(slow.Err(), events.ErrSlow) {
		t.Errorf("slow subscriber got %d events and %v", n, slow.Err())
	}
	if quick.Err() != nil {
		t.Errorf("quick subscriber: %v", quick.Err())
	}
	hub.Close()
	for range quick.Events {
	}
	if !errors.Is(quick.Err(), events.ErrClosed) {
		t.Errorf("after Close: %v", quick.Err())
	}
	quick.Cancel()
	if _, err := hub.Subscribe(); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Subscribe after Close: %v", err)
	}
}

func TestSubscribersAreBounded(t *testing.T) {
	var hub events.Hub
	for range events.MaxSubscribers {
		if _, err := hub.Subscribe(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := hub.Subscribe(); !errors.Is(err, events.ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
}

func TestConvert(t *testing.T) {
	at := time.Unix(1700000000, 5).UTC()
	exit := &sandbox.Exit{Code: 137, Signal: 9, Reason: sandbox.ReasonOOMKilled, At: at}
	p, exec := sandbox.Process{Container: "c"}, sandbox.Process{Container: "c", Exec: "e"}
	tests := []struct {
		in    sandbox.Event
		topic string
		want  proto.Message
	}{
		{sandbox.Event{Kind: sandbox.SandboxStarted}, events.TopicSandboxStart, &containerd.SandboxStart{SandboxID: "s"}},
		{sandbox.Event{Kind: sandbox.ContainerCreated, Process: p}, events.TopicCreate, &containerd.TaskCreate{ContainerID: "c"}},
		{sandbox.Event{Kind: sandbox.ProcessStarted, Process: p, PID: 7}, events.TopicStart, &containerd.TaskStart{ContainerID: "c", Pid: 7}},
		{
			sandbox.Event{Kind: sandbox.ExecCreated, Process: exec},
			events.TopicExecAdded,
			&containerd.TaskExecAdded{ContainerID: "c", ExecID: "e"},
		},
		{
			sandbox.Event{Kind: sandbox.ProcessStarted, Process: exec, PID: 8},
			events.TopicExecStarted,
			&containerd.TaskExecStarted{ContainerID: "c", ExecID: "e", Pid: 8},
		},
		{sandbox.Event{Kind: sandbox.OOM, Process: p}, events.TopicOOM, &containerd.TaskOOM{ContainerID: "c"}},
		{sandbox.Event{Kind: sandbox.ContainerPaused, Process: p}, events.TopicPaused, &containerd.TaskPaused{ContainerID: "c"}},
		{sandbox.Event{Kind: sandbox.ContainerResumed, Process: p}, events.TopicResumed, &containerd.TaskResumed{ContainerID: "c"}},
	}
	for _, test := range tests {
		test.in.Time = at
		got, err := events.Convert("s", test.in)
		if err != nil {
			t.Errorf("%s: %v", test.topic, err)
			continue
		}
		body, err := got.Event.UnmarshalNew()
		if err != nil {
			t.Errorf("%s: %v", test.topic, err)
			continue
		}
		if got.Topic != test.topic || !proto.Equal(body, test.want) || !got.Time.AsTime().Equal(at) {
			t.Errorf("%v became %s %v", test.in, got.Topic, body)
		}
	}
	got, err := events.Convert("s", sandbox.Event{Kind: sandbox.ProcessExited, Process: p, PID: 7, Exit: exit})
	if err != nil {
		t.Fatal(err)
	}
	var gone containerd.TaskExit
	if err := got.Event.UnmarshalTo(&gone); err != nil {
		t.Fatal(err)
	}
	if gone.ID != "c" || gone.ExitStatus != 137 || !gone.ExitedAt.AsTime().Equal(at) {
		t.Errorf("exit became %v", &gone)
	}
	if _, err := events.Convert("s", sandbox.Event{Kind: "new"}); err == nil {
		t.Error("an unknown kind was converted")
	}
}
