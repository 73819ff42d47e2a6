package oci

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestNew(t *testing.T) {
	spec, err := New("c1", "/bin/true", "x")
	if err != nil {
		t.Fatal(err)
	}
	if spec.Linux.CgroupsPath != "/c1" || !slices.Equal(spec.Process.Args, []string{"/bin/true", "x"}) {
		t.Errorf("cgroup %q, command %q", spec.Linux.CgroupsPath, spec.Process.Args)
	}
	last := spec.Mounts[len(spec.Mounts)-1]
	namespaces := spec.Linux.Namespaces
	if last.Destination != "/dev/shm" || namespaces[len(namespaces)-1].Type != specs.PIDNamespace {
		t.Errorf("the last mount is at %s, the last namespace is %s", last.Destination, namespaces[len(namespaces)-1].Type)
	}
	for _, namespace := range namespaces {
		if slices.Contains([]specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace}, namespace.Type) {
			t.Errorf("the %s namespace is not the VM's", namespace.Type)
		}
	}
	if l := spec.Linux; l.Seccomp == nil || len(l.MaskedPaths) == 0 || len(l.ReadonlyPaths) == 0 || *l.Resources.Pids.Limit <= 0 {
		t.Errorf("a default is missing: %+v", spec.Linux)
	}
	other, err := New("")
	if err != nil || other.Linux.CgroupsPath != "" {
		t.Errorf("without an id: %+v, %v", other, err)
	}
	// One caller's changes must not affect another's specification.
	spec.Linux.MaskedPaths[0], spec.Mounts[0].Options[0], spec.Process.Capabilities.Effective[0] = "/x", "x", "x"
	spec.Linux.Seccomp.Syscalls[0].Names[0] = "x"
	again, err := New("")
	if err != nil || again.Linux.MaskedPaths[0] == "/x" || again.Mounts[0].Options[0] == "x" ||
		again.Process.Capabilities.Effective[0] == "x" || again.Linux.Seccomp.Syscalls[0].Names[0] == "x" ||
		spec.Process.Capabilities.Bounding[0] == "x" {
		t.Error("two specifications share memory")
	}
}

func TestEnv(t *testing.T) {
	for _, tc := range []struct {
		name  string
		apply func([]string, string, string) []string
		env   string
		want  string
	}{
		{name: "set a new one", apply: SetEnv, env: "B=1", want: "B=1 A=x"},
		{name: "replace", apply: SetEnv, env: "A=1 B=1", want: "A=x B=1"},
		{name: "replace one without a value", apply: SetEnv, env: "A B=1", want: "A=x B=1"},
		{name: "a longer name", apply: SetEnv, env: "AA=1", want: "AA=1 A=x"},
		{name: "default", apply: DefaultEnv, env: "B=A=1", want: "B=A=1 A=x"},
		{name: "already set", apply: DefaultEnv, env: "A=1", want: "A=1"},
		{name: "set to nothing", apply: DefaultEnv, env: "A=", want: "A="},
		{name: "without a value", apply: DefaultEnv, env: "A", want: "A=x"},
	} {
		if got := strings.Join(tc.apply(strings.Fields(tc.env), "A", "x"), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestExec(t *testing.T) {
	spec, err := New("c1", "/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		spec    *specs.Spec
		command []string
	}{
		"no specification": {spec: nil, command: []string{"a"}},
		"no process":       {spec: &specs.Spec{}, command: []string{"a"}},
		"no command":       {spec: spec},
		"an empty command": {spec: spec, command: []string{"", "a"}},
	} {
		if _, err := Exec(tc.spec, tc.command, false); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	process, err := Exec(spec, []string{"sh"}, false)
	if err != nil || process.Terminal || slices.Contains(process.Env, "TERM=xterm") || spec.Process.Args[0] != "/bin/true" {
		t.Errorf("process %+v, %v", process, err)
	}
}
