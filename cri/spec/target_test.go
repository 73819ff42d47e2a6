package spec

import (
	"errors"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/oci"
)

// targeted returns a container that sees the processes of another one.
func targeted(id string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Command: []string{"sh"},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: id},
		}},
	}
}

func TestTargetNamespace(t *testing.T) {
	spec, err := whole(Input{ID: "new", Container: targeted("old")})
	if err != nil {
		t.Fatal(err)
	}
	want := specs.LinuxNamespace{Type: specs.PIDNamespace, Path: "bulkhead.container:old"}
	if !slices.Contains(spec.Linux.Namespaces, want) {
		t.Errorf("namespaces %v", spec.Linux.Namespaces)
	}
	if _, err := whole(Input{Container: targeted("")}); !errors.Is(err, oci.ErrInvalid) {
		t.Errorf("without a target: %v", err)
	}
}

func TestTerminationMount(t *testing.T) {
	config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Command: []string{"sh"}}
	for at, want := range map[string]bool{"": false, "/dev/termination-log": false, "/tmp/words": true} {
		spec, err := whole(Input{Container: config, Termination: at})
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool {
			return m.Type == "bulkhead.termination" && m.Destination == at
		})
		if found != want {
			t.Errorf("at %q: mounts %v", at, spec.Mounts)
		}
	}
	for _, at := range []string{"words", "/", "/tmp/.."} {
		if _, err := whole(Input{Container: config, Termination: at}); !errors.Is(err, oci.ErrInvalid) {
			t.Errorf("at %q: %v", at, err)
		}
	}
}
