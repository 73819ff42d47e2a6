package hosts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// testKVM: QEMU under KVM does what every hypervisor must do, and its templates make VMs. A clone starts sooner than a VM
// that boots.
func (h *host) testKVM(t *testing.T) {
	for _, tests := range []struct{ program, names string }{
		{"qemu", "TestConformance|TestVMKinds|TestSave|TestCPU"},
		{"template", "TestTemplateLife|TestKilledBuilder"},
	} {
		out, err := h.try(testdeadline.Context(t, 20*time.Minute), "root", fmt.Sprintf("cd /tmp && "+
			"BULKHEAD_TEST_ACCEL=kvm BULKHEAD_TEST_GUESTINIT=/mnt/guestinit BULKHEAD_GUEST=/usr/share/bulkhead/guest "+
			"/mnt/%s.test -test.v -test.run '%s'", tests.program, tests.names))
		if err != nil || strings.Contains(out, "--- SKIP") {
			t.Errorf("the tests of %s: %v: %s", tests.program, err, out)
		}
	}
	h.do(t, "root", loads)
	clone, cold := h.starts(t, ""), h.starts(t, "--template off")
	t.Logf("a start takes %v ms as a clone and %v ms cold: %.1f times as long", clone, cold, float64(cold)/float64(clone))
	if clone >= cold {
		t.Error("a clone starts no sooner than a VM that boots")
	}
}

// starts returns how many milliseconds a pod takes: the median of five. The first one may build a template.
func (h *host) starts(t *testing.T, flags string) int {
	t.Helper()
	out := h.do(t, "root", fmt.Sprintf(`for i in 0 1 2 3 4 5; do
		began=$(date +%%s%%3N); bulkhead --detail run --rm --accel kvm %s localhost/busybox:demo true; echo $(($(date +%%s%%3N) - began))
	done`, flags))
	var took []int
	for _, word := range strings.Fields(out)[1:] {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, n)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
