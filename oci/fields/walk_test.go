package fields

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestSelect(t *testing.T) {
	no, yes, seven := false, true, int64(7)
	in := &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{Env: []string{"A=1", "A=2"}, Capabilities: &specs.LinuxCapabilities{}, User: specs.User{UID: 7, Username: "x"}},
		Mounts:  []specs.Mount{{Destination: "/a", Source: "/secret"}},
		Hooks:   &specs.Hooks{Poststop: []specs.Hook{{Path: "/hook"}}},
		Windows: &specs.Windows{},
		VM:      &specs.VM{Hypervisor: specs.VMHypervisor{Path: "/qemu"}},
		Linux: &specs.Linux{
			Sysctl: map[string]string{"a": "b"}, CgroupsPath: "/c", UIDMappings: []specs.LinuxIDMapping{{Size: 1}},
			IntelRdt: &specs.LinuxIntelRdt{ClosID: "c"}, Devices: []specs.LinuxDevice{},
			Resources: &specs.LinuxResources{
				Memory:  &specs.LinuxMemory{DisableOOMKiller: &no, UseHierarchy: &yes, Limit: &seven},
				BlockIO: &specs.LinuxBlockIO{}, Pids: &specs.LinuxPids{},
			},
		},
	}
	want := &specs.Spec{
		Process: &specs.Process{Env: []string{"A=1", "A=2"}, Capabilities: &specs.LinuxCapabilities{}, User: specs.User{UID: 7}},
		Mounts:  []specs.Mount{{Destination: "/a"}},
		Linux: &specs.Linux{
			Sysctl: map[string]string{"a": "b"}, Devices: []specs.LinuxDevice{},
			Resources: &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &seven}, Pids: &specs.LinuxPids{}},
		},
	}
	before := Copy(in)
	var reported []string
	got := Select(in, "", func(path string, e Entry) { reported = append(reported, path+" "+string(e.Treatment)) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if names := []string{
		"process.user.username ignored", "linux.resources.memory.useHierarchy ignored", "linux.intelRdt ignored", "vm.hypervisor refused",
	}; !slices.Equal(reported, names) {
		t.Errorf("reported %q", reported)
	}
	// The copy shares no memory.
	got.Process.Env[0], got.Linux.Sysctl["a"], *got.Linux.Resources.Memory.Limit = "x", "x", 8
	if diff := cmp.Diff(before, in); diff != "" {
		t.Error(diff)
	}
	if Select[specs.Spec](nil, "", nil) != nil {
		t.Error("a copy of nil")
	}
}

func TestStrings(t *testing.T) {
	in := &specs.Spec{Process: &specs.Process{Args: []string{"a", "b"}}, Annotations: map[string]string{"k": "v", "j": "w"}}
	var got []string
	Strings(in, func(path, text string) {
		if text != "" {
			got = append(got, path+"="+text)
		}
	})
	want := []string{"process.args[0]=a", "process.args[1]=b", "annotations=j", "annotations.j=w", "annotations=k", "annotations.k=v"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
