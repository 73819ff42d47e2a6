package run

import (
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

func TestConditions(t *testing.T) {
	e := endedEntry(t, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.2", Conditions: []corev1.PodCondition{
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
