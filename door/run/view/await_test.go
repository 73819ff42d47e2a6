package view

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"

	corev1 "k8s.io/api/core/v1"
)

func TestConditions(t *testing.T) {
	e := endedPod(t, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.2", Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodInitialized, Status: corev1.ConditionFalse},
	}})
	for text, want := range map[string]bool{
		"condition=Ready": true, "condition=ready=true": true, "condition=Ready=False": false,
		"condition=Initialized": false, "condition=Initialized=false": true, "condition=Absent": false,
		"jsonpath={.status.phase}=Running": true, "jsonpath={.status.phase}=Failed": false, "jsonpath={.status.podIP}": true,
		"jsonpath={.status.nominatedNodeName}": false, "jsonpath={.metadata.labels.app}=web": true, "jsonpath={.no.such}=x": false,
		`jsonpath={.status.conditions[?(@.type=="Ready")].status}=True`: true,
	} {
		met, err := condition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := met(e); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "Ready", "condition", "condition=", "condition==True", "jsonpath", "jsonpath=.a", "jsonpath={.a", "jsonpath={.a}b", "create",
	} {
		if _, err := condition(text); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// door is the door of pods that do not run.
type door struct{}

func (door) Event(pod.Event) {}
func (door) Release()        {}
func (door) Configure(o *pod.Options) error {
	o.Runtime, o.Images = (*cri.Service)(nil), (*cri.Service)(nil)
	return nil
}

// endedPod returns a pod that ended under an earlier engine, with this status.
func endedPod(t *testing.T, status corev1.PodStatus) *manager.Pod {
	t.Helper()
	rec := manager.Record{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u-1", Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		},
		Ended: &status,
	}
	dir := filepath.Join(t.TempDir(), "pods")
	if err := os.MkdirAll(filepath.Join(dir, "u-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteJSON(filepath.Join(dir, "u-1", "pod.json"), rec, 0o600, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	m, err := manager.Open(t.Context(), manager.Options{
		Dir: dir, VolumeDir: t.TempDir(), Door: func(*manager.Pod) manager.Door { return door{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	p, err := m.Find("web")
	if err != nil {
		t.Fatal(err)
	}
	return p
}
