package object

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
)

// TestEvents: the start, another boot and changed conditions of a node each lead to one event with the kubelet's text.
func TestEvents(t *testing.T) {
	t.Parallel()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	known := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	known.Status.NodeInfo.BootID = "before"
	known.Status.Conditions = []corev1.NodeCondition{ready, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}
	again := known.DeepCopy()
	again.Status.NodeInfo.BootID = "now"
	starting, isReady := "Normal Starting Starting bulkhead node.", "Normal NodeReady Node node status is now: NodeReady"
	for name, tt := range map[string]struct {
		client *fake.Clientset
		want   []string
	}{
		"a new node": {fake.NewClientset(), []string{
			isReady, "Normal NodeHasNoDiskPressure Node node status is now: NodeHasNoDiskPressure", starting,
		}},
		"a restarted node": {fake.NewClientset(again), []string{starting}},
		"a rebooted node":  {fake.NewClientset(known), []string{starting, "Warning Rebooted Node node has been rebooted, boot id: now"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var pressed atomic.Bool
				recorder := record.NewFakeRecorder(100)
				k, err := New(Options{Client: tt.client, Name: "node", Events: recorder, Status: func(context.Context) corev1.NodeStatus {
					disk := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}
					if pressed.Load() {
						disk.Status = corev1.ConditionTrue
					}
					return corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "now"}, Conditions: []corev1.NodeCondition{ready, disk}}
				}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				defer all.Wait()
				defer cancel()
				all.Go(func() { k.Run(ctx, func() {}) })
				events := func() (all []string) {
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					for len(recorder.Events) > 0 {
						all = append(all, <-recorder.Events)
					}
					return all
				}
				if got := events(); !slices.Equal(got, tt.want) {
					t.Errorf("at first: %q", got)
				}
				for _, reason := range []string{"NodeHasDiskPressure", "NodeHasNoDiskPressure"} {
					pressed.Store(!pressed.Load())
					if got := events(); !slices.Equal(got, []string{"Normal " + reason + " Node node status is now: " + reason}) {
						t.Errorf("%s: %q", reason, got)
					}
				}
			})
		})
	}
}
