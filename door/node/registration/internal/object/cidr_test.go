package object

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestPodCIDR: the runtime gets the pod CIDRs as soon as the Node has them, again until it accepts them, and when they
// change. The status is reported meanwhile.
func TestPodCIDR(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var mu sync.Mutex
		var passed []string
		fails := errors.New("not yet")
		k, err := New(Options{
			Client: client, Name: "node",
			Status: func(context.Context) corev1.NodeStatus {
				return corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
			},
			PodCIDR: func(_ context.Context, cidrs string) error {
				mu.Lock()
				defer mu.Unlock()
				passed = append(passed, cidrs)
				return fails
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		registered := false
		all.Go(func() { k.Run(ctx, func() { registered = true }) })
		since := func(d time.Duration) []string {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			all := passed
			passed = nil
			return all
		}
		if got := since(time.Minute); len(got) > 0 || !registered {
			t.Errorf("without addresses: %v", got)
		}
		give := func(one string, all ...string) {
			node := get(t, client).DeepCopy()
			node.Spec.PodCIDR, node.Spec.PodCIDRs = one, all
			if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
				t.Fatal(err)
			}
		}
		give("10.1.0.0/24")
		if got := since(time.Millisecond); !slices.Equal(got, []string{"10.1.0.0/24"}) {
			t.Errorf("at first: %v", got)
		}
		if got := since(10 * time.Second); len(got) < 2 || len(got) > 8 {
			t.Errorf("while the runtime fails: %v", got)
		}
		mu.Lock()
		fails = nil
		mu.Unlock()
		if got := since(time.Minute); len(got) != 1 {
			t.Errorf("after the failures: %v", got)
		}
		give("10.1.0.0/24", "10.1.0.0/24", "fd00::/64")
		if got := since(time.Minute); !slices.Equal(got, []string{"10.1.0.0/24,fd00::/64"}) {
			t.Errorf("after a change: %v", got)
		}
	})
}
