package qemu_test

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor/hypervisortest"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
)

func driver(t testing.TB) qemu.Driver {
	t.Helper()
	d, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	hypervisortest.Suite{Driver: driver(t), Machine: hypervisortest.Machine(t)}.Run(t)
}
