package engine_test

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/engine"
)

func TestDoor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, of, door, key string }{
		{name: "a door's", of: engine.DoorKey("oci", "c1"), door: "oci", key: "c1"},
		{name: "with a slash", of: engine.DoorKey("containerd", "k8s.io/c1"), door: "containerd", key: "k8s.io/c1"},
		{name: "a namespace of a door's name", of: "oci/c1/uid/0"},
		{name: "none", of: ""},
	} {
		p := engine.Pod{Key: tc.of}
		if door, key := p.Door(); door != tc.door || key != tc.key {
			t.Errorf("%s: %q, %q", tc.name, door, key)
		}
	}
}
