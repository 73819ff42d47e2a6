package events

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/bulkhead-project/bulkhead/pod"
)

// recorded returns the events in a fake API server.
func recorded(ctx context.Context, t *testing.T, client *fake.Clientset) []corev1.Event {
	t.Helper()
	synctest.Wait()
	list, err := client.CoreV1().Events("ns").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// TestPod checks that an event has the pod, the path of the container, the source and the type.
func TestPod(t *testing.T) {
	t.Parallel()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "uid", ResourceVersion: "7"},
		Spec: corev1.PodSpec{
			InitContainers:      []corev1.Container{{Name: "first"}, {Name: "side"}},
			Containers:          []corev1.Container{{Name: "main"}, {Name: "other"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		},
	}
	for _, tt := range []struct {
		name  string
		event pod.Event
		kind  string
		path  string
	}{
		{name: "pod", event: pod.Event{Reason: "FailedMount", Message: "no such volume", Warning: true}, kind: "Warning"},
		{name: "normal", event: pod.Event{Reason: "Scheduled", Message: "here"}, kind: "Normal"},
		{
			name: "container", event: pod.Event{Reason: "Started", Message: "Started container other", Container: "other"},
			kind: "Normal", path: "spec.containers{other}",
		},
		{
			name: "container that fails", event: pod.Event{Reason: "Failed", Message: "no image", Container: "main", Warning: true},
			kind: "Warning", path: "spec.containers{main}",
		},
		{
			name: "init container", event: pod.Event{Reason: "BackOff", Message: "later", Container: "first", Warning: true},
			kind: "Warning", path: "spec.initContainers{first}",
		},
		{
			name: "sidecar", event: pod.Event{Reason: "Pulled", Message: "it is here", Container: "side"},
			kind: "Normal", path: "spec.initContainers{side}",
		},
		{
			name: "ephemeral container", event: pod.Event{Reason: "Created", Message: "made", Container: "debug"},
			kind: "Normal", path: "spec.ephemeralContainers{debug}",
		},
		{
			name:  "ephemeral container that was added since", // to a copy of the pod that is older
			event: pod.Event{Reason: "Created", Message: "made", Container: "later"}, kind: "Normal", path: "spec.ephemeralContainers{later}",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				e := New(client, "node", slog.New(slog.DiscardHandler))
				defer e.Close()
				e.Pod(p, tt.event)
				all := recorded(t.Context(), t, client)
				if len(all) != 1 {
					t.Fatalf("%d events", len(all))
				}
				got := all[0]
				want := corev1.Event{
					TypeMeta: got.TypeMeta, ObjectMeta: got.ObjectMeta, Type: tt.kind, Reason: tt.event.Reason, Message: tt.event.Message, Count: 1,
					InvolvedObject: corev1.ObjectReference{
						APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "p", UID: "uid", ResourceVersion: "7", FieldPath: tt.path,
					},
					Source:         corev1.EventSource{Component: "bulkhead", Host: "node"},
					FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
					ReportingController: "bulkhead", ReportingInstance: "node",
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestSameAgain checks that a repeated event is counted, not recorded again.
func TestSameAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		e := New(client, "node", slog.New(slog.DiscardHandler))
		defer e.Close()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "uid"}}
		for range 3 {
			e.Pod(p, pod.Event{Reason: "BackOff", Message: "later", Warning: true})
			time.Sleep(time.Second)
		}
		if all := recorded(t.Context(), t, client); len(all) != 1 || all[0].Count != 3 {
			t.Errorf("events %v", all)
		}
	})
}
