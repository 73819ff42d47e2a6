package spec

import (
	"errors"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

// TestSecurity: a privileged container has everything in its VM. Another one has the masks of the kubelet's procMount,
// and by default the pod's process namespace.
func TestSecurity(t *testing.T) {
	type security = runtimeapi.LinuxContainerSecurityContext
	runtimeDefault := &runtimeapi.SecurityProfile{}
	for name, test := range map[string]struct {
		security           *security
		masked, readonly   int
		caps               int
		filtered, readable bool // a filter; /sys and cgroup read-only
		pid                string
		devices            bool
	}{
		"nothing said": {nil, len(oci.MaskedPaths()), len(oci.ReadonlyPaths()), len(oci.DefaultCapabilities()), false, true,
			agentv1.Namespace(""), false},
		"masks of its own": {&security{Seccomp: runtimeDefault, MaskedPaths: []string{"/proc/x"}},
			1, 0, len(oci.DefaultCapabilities()), true, true, agentv1.Namespace(""), false},
		"unmasked": {&security{Seccomp: runtimeDefault, NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}},
			0, 0, len(oci.DefaultCapabilities()), true, true, "", false},
		"privileged": {&security{Seccomp: runtimeDefault, Privileged: true, NoNewPrivs: true, MaskedPaths: []string{"/proc/x"},
			Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}},
			0, 0, len(oci.AllCapabilities()), false, false, agentv1.Namespace(""), true},
		"pod's processes": {&security{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}},
			len(oci.MaskedPaths()), len(oci.ReadonlyPaths()), len(oci.DefaultCapabilities()), false, true, agentv1.Namespace(""), false},
		"another's processes": {&security{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: "c1"}},
			len(oci.MaskedPaths()), len(oci.ReadonlyPaths()), len(oci.DefaultCapabilities()), false, true, agentv1.Namespace("c1"), false},
		"user namespace": {&security{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER,
			UsernsOptions: &runtimeapi.UserNamespace{}}},
			len(oci.MaskedPaths()), len(oci.ReadonlyPaths()), len(oci.DefaultCapabilities()), false, true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := whole(Input{Container: &runtimeapi.ContainerConfig{
				Command: []string{"a"}, Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: test.security},
			}})
			if err != nil {
				t.Fatal(err)
			}
			l := spec.Linux
			if len(l.MaskedPaths) != test.masked || len(l.ReadonlyPaths) != test.readonly {
				t.Errorf("%d masked and %d read-only paths", len(l.MaskedPaths), len(l.ReadonlyPaths))
			}
			if got := len(spec.Process.Capabilities.Effective); got != test.caps {
				t.Errorf("%d capabilities, want %d", got, test.caps)
			}
			if (l.Seccomp != nil) != test.filtered || spec.Process.NoNewPrivileges {
				t.Errorf("filter %v, no new privileges %v", l.Seccomp != nil, spec.Process.NoNewPrivileges)
			}
			for _, m := range spec.Mounts {
				if (m.Destination == "/sys" || m.Destination == "/sys/fs/cgroup") && (m.Options[len(m.Options)-1] == "ro") != test.readable {
					t.Errorf("%s is mounted with %v", m.Destination, m.Options)
				}
			}
			for _, ns := range l.Namespaces {
				if ns.Type == "pid" && ns.Path != test.pid {
					t.Errorf("process namespace %q, want %q", ns.Path, test.pid)
				}
				if ns.Type == "user" {
					t.Error("a user namespace")
				}
			}
			if all := spec.Annotations[agentv1.AllDevices] == "true"; all != test.devices || l.Resources.Devices[0].Allow != test.devices {
				t.Errorf("all devices: %v, rule %+v", all, l.Resources.Devices[0])
			}
		})
	}
	host := &security{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE}}
	if _, err := whole(Input{Container: &runtimeapi.ContainerConfig{Command: []string{"a"},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: host}}}); !errors.Is(err, oci.ErrNotSupported) {
		t.Errorf("the host's processes: %v", err)
	}
	unread := &security{Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/x"}}
	if _, err := whole(Input{Container: &runtimeapi.ContainerConfig{Command: []string{"a"},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: unread}}}); !errors.Is(err, oci.ErrInvalid) {
		t.Errorf("an unread profile: %v", err)
	}
}

// TestAppArmor: an AppArmor profile is refused, because the guest cannot enforce it.
func TestAppArmor(t *testing.T) {
	for profile, want := range map[*runtimeapi.LinuxContainerSecurityContext]error{
		{Apparmor: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}}: nil,
		{ApparmorProfile: "unconfined"}:           nil,
		{Apparmor: &runtimeapi.SecurityProfile{}}: oci.ErrNotSupported,
		{Apparmor: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost}}: oci.ErrNotSupported,
		{ApparmorProfile: "runtime/default"}: oci.ErrNotSupported,
	} {
		_, err := whole(Input{Container: &runtimeapi.ContainerConfig{
			Command: []string{"a"}, Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: profile},
		}})
		if !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", profile, err, want)
		}
	}
}

func TestStorageLimit(t *testing.T) {
	for _, limit := range []int64{0, 1048576} {
		spec, err := whole(Input{
			Container: &runtimeapi.ContainerConfig{Command: []string{"a"}}, Own: runtimev1.ContainerOptions{StorageBytes: limit},
		})
		want := ""
		if limit > 0 {
			want = "1048576"
		}
		if err != nil || spec.Annotations[agentv1.StorageLimit] != want {
			t.Errorf("%d: %v, want %q", limit, err, want)
		}
	}
}
