package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod returns a pod with a priority and these requests.
func pod(name string, priority int32, cpu, memory string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority}}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list(cpu, memory)}}}
	return p
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func requests(p *corev1.Pod) corev1.ResourceList { return p.Spec.Containers[0].Resources.Requests }

func names(pods []*corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

// TestChoose checks that choose ends as few pods as possible, of the least priority, and none if that would not help.
func TestChoose(t *testing.T) {
	t.Parallel()
	const static = "0123456789abcdef0123456789abcdef"
	best := pod("best", 5, "0", "0")
	best.Spec.Containers[0].Resources.Requests = nil
	young := pod("young", 0, "1", "1Gi")
	young.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	for name, tt := range map[string]struct {
		lacks  corev1.ResourceList
		pods   []*corev1.Pod
		want   []string
		enough bool
	}{
		"no lack":            {list("0", "0"), []*corev1.Pod{pod("a", 0, "1", "1Gi")}, nil, true},
		"one of two":         {list("500m", "0"), []*corev1.Pod{pod("b", 9, "1", "0"), pod("a", 0, "1", "0")}, []string{"a"}, true},
		"the younger":        {list("1", "0"), []*corev1.Pod{pod("old", 0, "1", "0"), young}, []string{"young"}, true},
		"one instead of two": {list("2", "0"), []*corev1.Pod{pod("a", 0, "1", "0"), pod("b", 1, "2", "0")}, []string{"b"}, true},
		"two resources": {
			list("1", "1Gi"), []*corev1.Pod{pod("a", 0, "1", "0"), pod("b", 1, "0", "1Gi"), pod("c", 2, "1", "1Gi")}, []string{"a", "b"}, true,
		},
		"both":                  {list("2", "0"), []*corev1.Pod{pod("a", 0, "1", "0"), pod("b", 1, "1", "0")}, []string{"a", "b"}, true},
		"one without resources": {list("1", "0"), []*corev1.Pod{best, pod("a", 0, "1", "0")}, []string{"a"}, true},
		"not enough":            {list("3", "0"), []*corev1.Pod{pod("a", 0, "1", "0"), pod("b", 1, "1", "0")}, nil, false},
		"critical":              {list("1", "0"), []*corev1.Pod{pod("a", 2_000_000_000, "1", "0"), pod(static, 0, "1", "0")}, nil, false},
		"none at all":           {list("1", "0"), nil, nil, false},
	} {
		before := names(tt.pods)
		got, enough := choose(tt.lacks, tt.pods, requests)
		if !slices.Equal(names(got), tt.want) || enough != tt.enough || !slices.Equal(names(tt.pods), before) {
			t.Errorf("%s: %v, %v", name, names(got), enough)
		}
	}
}

// TestPreempt checks that only a critical pod that lacks a resource preempts others. It waits for pods that are already
// ending, and a failed end does not lead to more victims.
func TestPreempt(t *testing.T) {
	t.Parallel()
	critical, other := pod("critical", 2_000_000_000, "1", "0"), pod("other", 1_000_000_000, "1", "0")
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		reason string
		lacks  string
		err    error
		ended  string
		again  bool
	}{
		"critical":           {critical, "OutOfcpu", "1", nil, "[a]", true},
		"its end fails":      {critical, "OutOfcpu", "1", errors.New("it does not end"), "[a]", true},
		"others are ending":  {critical, "OutOfcpu", "0", nil, "[]", true},
		"too much":           {critical, "OutOfcpu", "5", nil, "[]", false},
		"not critical":       {other, "OutOfcpu", "1", nil, "[]", false},
		"for another reason": {critical, "NodePorts", "1", nil, "[]", false},
	} {
		ended := []string{}
		m := New(Options{
			Pods: func() []*corev1.Pod { return []*corev1.Pod{pod("b", 3, "1", "0"), pod("a", 2, "1", "0")} },
			Gone: func(uid types.UID) bool { return uid == "gone" },
			Lacks: func(p *corev1.Pod, gone func(types.UID) bool) corev1.ResourceList {
				if p != tt.pod || !gone("gone") || gone("a") {
					t.Errorf("%s: asked about %s", name, p.Name)
				}
				return list(tt.lacks, "0")
			},
			Requests: requests,
			End: func(ctx context.Context, p *corev1.Pod) error {
				if _, bounded := ctx.Deadline(); !bounded {
					t.Errorf("%s: no deadline", name)
				}
				ended = append(ended, p.Name)
				return tt.err
			},
		})
		end, again := m.Preempt(tt.pod, tt.reason)
		if len(ended) > 0 {
			t.Errorf("%s: ended at once", name)
		}
		if end != nil {
			end(t.Context())
		}
		if again != tt.again || fmt.Sprint(ended) != tt.ended {
			t.Errorf("%s: %v, ended %v", name, again, ended)
		}
	}
}

// TestChosenOnce checks that an ending pod is not chosen again and that its resources count as free. If its end fails,
// it may be chosen again.
func TestChosenOnce(t *testing.T) {
	t.Parallel()
	victim := pod("a", 0, "1", "0")
	m := New(Options{
		Pods: func() []*corev1.Pod { return []*corev1.Pod{victim} },
		Gone: func(types.UID) bool { return false },
		Lacks: func(_ *corev1.Pod, gone func(types.UID) bool) corev1.ResourceList {
			if gone(victim.UID) {
				return list("0", "0")
			}
			return list("1", "0")
		},
		Requests: requests,
		End:      func(context.Context, *corev1.Pod) error { return errors.New("it does not end") },
	})
	critical := pod("critical", 2_000_000_000, "1", "0")
	end, again := m.Preempt(critical, "OutOfcpu")
	if end == nil || !again {
		t.Fatalf("no pod is ended: %v", again)
	}
	if twice, again := m.Preempt(critical, "OutOfcpu"); twice != nil || !again {
		t.Errorf("while it ends: again %v, another end: %v", again, twice != nil)
	}
	end(t.Context())
	if end, again = m.Preempt(critical, "OutOfcpu"); end == nil || !again {
		t.Errorf("after its end has failed: again %v, another end: %v", again, end != nil)
	}
}
