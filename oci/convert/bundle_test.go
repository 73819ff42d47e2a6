package convert

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/oci"
)

func TestSimpleBundle(t *testing.T) {
	spec, err := oci.DecodeBundle([]byte(`{"ociVersion":"1.0.2","process":{"args":["true"],"cwd":"/"},"root":{"path":"rootfs"},
		"mounts":[{"destination":"/proc","type":"proc"},{"destination":"/srv","type":"bind","source":"/data","options":["rbind","ro"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Bundle(spec, Options{ID: "c1", Bundle: "/run/c1"})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Trees) != 2 || plan.Trees[0].Source != "/run/c1/rootfs" || plan.Trees[1].Source != "/data" {
		t.Errorf("trees %+v", plan.Trees)
	}
	if m := plan.Guest.Mounts[1]; m.Source != "/1" || !strings.Contains(m.Type, "share") {
		t.Errorf("mount %+v", m)
	}
}
