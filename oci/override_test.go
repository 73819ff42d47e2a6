package oci

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestOverride(t *testing.T) {
	own := func() *specs.Process {
		return &specs.Process{
			Cwd: "/srv", Env: []string{"A=1", "B=2"}, User: specs.User{UID: 5, GID: 6, AdditionalGids: []uint32{7}},
		}
	}
	p := own()
	if err := (Override{}).Apply(p); err != nil || cmp.Diff(own(), p) != "" {
		t.Errorf("nothing: %v, %s", err, cmp.Diff(own(), p))
	}
	want := &specs.Process{Cwd: "/tmp", Env: []string{"A=x=y", "B=2", "C="}, User: specs.User{Username: "nobody:7"}}
	if err := (Override{User: "nobody:7", Dir: "/tmp", Env: []string{"A=x=y", "C="}}).Apply(p); err != nil || cmp.Diff(want, p) != "" {
		t.Errorf("all: %v, %s", err, cmp.Diff(want, p))
	}
	for _, o := range []Override{{Dir: "tmp"}, {Dir: "/a\x00b"}, {Env: []string{"A"}}, {Env: []string{"=x"}}, {Env: []string{"A=\x00"}}} {
		if err := o.Apply(own()); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
