package records

import (
	"encoding/json"
	"slices"
	"testing"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// TestNoContainerHoldsTheRing: a container's record omits the disk for large answers, so the disk yields after a
// restart too.
func TestNoContainerHoldsTheRing(t *testing.T) {
	t.Parallel()
	c := ContainerConfig{Volumes: []Volume{{ID: "one"}, {ID: agentv1.RingDisk}}}
	if got := c.Disks(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("the record holds %q", got)
	}
}

// TestStdioIsWhatWasStored: stored standard streams are read back, also from containers that an earlier version stored.
func TestStdioIsWhatWasStored(t *testing.T) {
	t.Parallel()
	for _, want := range []containerv1.Stdio{
		containerv1.Log{}, containerv1.Log{Stdin: containerv1.StdinOnce}, containerv1.Stream{Stdin: containerv1.OpenStdin},
		containerv1.Stream{}, containerv1.Discard{}, containerv1.Discard{Stdin: containerv1.StdinOnce},
		containerv1.Descriptors{}, containerv1.Descriptors{Stdin: true},
	} {
		if got := StdioOf(want).Stdio(); got != want {
			t.Errorf("%#v is read back as %#v", want, got)
		}
	}
	var former ContainerConfig
	if err := json.Unmarshal([]byte(`{"id":"c","imageID":"i","volumes":[{"id":"v"}],"stdin":true,"output":"log"}`), &former); err != nil {
		t.Fatal(err)
	}
	if ids := former.Disks(); !slices.Equal(ids, []string{"i", "v"}) || former.Stdio() != (containerv1.Log{Stdin: containerv1.OpenStdin}) {
		t.Errorf("disks %q, streams %#v", ids, former.Stdio())
	}
}
