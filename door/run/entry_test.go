package run

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// TestUnhealthyIsToldOnce: a client that follows a run gets a repeated probe failure only once.
func TestUnhealthyIsToldOnce(t *testing.T) {
	t.Parallel()
	e := &entry{Pod: &manager.Pod{}, unhealthy: map[string]string{}}
	for i, step := range []struct {
		reason, container, message string
		again                      bool
	}{
		{"Unhealthy", "a", "refused", false},
		{"Unhealthy", "a", "refused", true},
		{"Unhealthy", "b", "refused", false},
		{"Failed", "a", "refused", false},
		{"Failed", "a", "refused", false},
		{"Unhealthy", "a", "timeout", false},
		{"Unhealthy", "a", "refused", false},
		{"ProbeWarning", "b", "refused", true},
	} {
		if got := e.expected(pod.Event{Reason: step.reason, Container: step.container, Message: step.message}); got != step.again {
			t.Errorf("step %d: %v", i, got)
		}
	}
}
