package cri

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestHandlers: a handler defines how VMs are made, and a pod's options extend it.
func TestHandlers(t *testing.T) {
	s := withBuiltIn(map[string]Handler{"alone": {NoFork: true, Accel: "tcg"}})
	for _, tc := range []struct {
		name      string
		ask, want runtimev1.PodOptions
	}{
		{name: ""},
		{name: RuntimeHandler},
		{name: ColdHandler, want: runtimev1.PodOptions{Cold: true}},
		{name: "alone", want: runtimev1.PodOptions{NoFork: true, Accel: "tcg"}},
		{name: "alone", ask: runtimev1.PodOptions{Accel: "kvm"}, want: runtimev1.PodOptions{NoFork: true, Accel: "kvm"}},
		{name: "", ask: runtimev1.PodOptions{Cold: true}, want: runtimev1.PodOptions{Cold: true}},
	} {
		got, err := s.options(tc.name, tc.ask)
		if err != nil || got.Cold != tc.want.Cold || got.NoFork != tc.want.NoFork || got.Accel != tc.want.Accel {
			t.Errorf("%q: %+v, %v", tc.name, got, err)
		}
	}
	_, err := s.options("runc", runtimev1.PodOptions{})
	if grpccode.Of(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "alone, bulkhead, bulkhead-cold") {
		t.Errorf("unknown: %v", err)
	}
	for _, h := range s.advertised() {
		if _, err := s.options(h.Name, runtimev1.PodOptions{}); err != nil || !h.Features.RecursiveReadOnlyMounts || h.Features.UserNamespaces {
			t.Errorf("%+v: %v", h, err)
		}
	}
	other := withBuiltIn(map[string]Handler{RuntimeHandler: {Cold: true}})
	if got, err := other.options("", runtimev1.PodOptions{}); err != nil || !got.Cold || len(other.advertised()) != 3 {
		t.Errorf("another default: %+v, %v", got, err)
	}
}

// TestColdHandler: the pods of a handler have its options and its name.
func TestColdHandler(t *testing.T) {
	s := fakeService(t, enginetest.New(), testOptions(t, enginetest.Roots(t)))
	for handler, clone := range map[string]bool{"": true, RuntimeHandler: true, ColdHandler: false} {
		id, err := s.RunPodSandbox(t.Context(), podConfig("p"+handler), handler)
		if err != nil {
			t.Fatal(err)
		}
		facts, err := s.PodFacts(t.Context(), id)
		if err != nil || facts.Clone != clone {
			t.Errorf("%q: %+v, %v", handler, facts, err)
		}
		list, err := s.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{Id: id})
		if err != nil || len(list) != 1 || list[0].RuntimeHandler != handler {
			t.Errorf("%q: %v, %v", handler, list, err)
		}
	}
	if _, err := s.RunPodSandbox(t.Context(), podConfig("q"), "runc"); grpccode.Of(err) != codes.InvalidArgument {
		t.Errorf("unknown: %v", err)
	}
	status, err := s.Status(t.Context(), false)
	if err != nil || len(status.GetRuntimeHandlers()) != 3 {
		t.Errorf("%v, %v", status, err)
	}
}
