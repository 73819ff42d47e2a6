package oci

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestRlimits(t *testing.T) {
	spec, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	if err := SetRlimits(spec.Process, []specs.POSIXRlimit{
		{Type: "RLIMIT_NOFILE", Soft: 7, Hard: 8}, {Type: "RLIMIT_CORE"}, {Type: "RLIMIT_CORE", Hard: 1},
	}); err != nil {
		t.Fatal(err)
	}
	process, err := Exec(spec, []string{"a"}, false)
	if err != nil {
		t.Fatal(err)
	}
	want := []specs.POSIXRlimit{
		{Type: "RLIMIT_NPROC", Soft: math.MaxUint64, Hard: math.MaxUint64}, {Type: "RLIMIT_NOFILE", Soft: 7, Hard: 8},
		{Type: "RLIMIT_CORE", Hard: 1},
	}
	if diff := cmp.Diff(want, process.Rlimits); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []specs.POSIXRlimit{
		{Type: "nofile", Soft: 1, Hard: 1}, {Type: "RLIMIT_CORE", Soft: 2, Hard: 1}, {Type: "RLIMIT_NOFILE", Hard: math.MaxUint64}, {},
	} {
		if err := SetRlimits(spec.Process, []specs.POSIXRlimit{bad}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
