package oci

import (
	"errors"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/annotations"
)

func TestParseSeccomp(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"log everything": {`{"defaultAction": "SCMP_ACT_LOG"}`, nil},
		"fine": {`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
			"syscalls": [{"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"},
			{"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13, "args": [{"index": 0, "value": 40, "op": "SCMP_CMP_EQ"}]}]}`, nil},
		"nothing":             {``, ErrInvalid},
		"no default":          {`{}`, ErrInvalid},
		"two objects":         {`{"defaultAction": "SCMP_ACT_LOG"} {}`, ErrInvalid},
		"not JSON":            {`defaultAction: SCMP_ACT_LOG`, ErrInvalid},
		"another tool's part": {`{"defaultAction": "SCMP_ACT_ERRNO", "archMap": []}`, ErrInvalid},
		"conditions":          {`{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}}]}`, ErrInvalid},
		"unknown action":      {`{"defaultAction": "ALLOW"}`, ErrInvalid},
		"a rule of nothing":   {`{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"action": "SCMP_ACT_ALLOW"}]}`, ErrInvalid},
		"notify":              {`{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_NOTIFY"}]}`, ErrNotSupported},
		"a listener":          {`{"defaultAction": "SCMP_ACT_LOG", "listenerPath": "/run/x.sock"}`, ErrNotSupported},
		"large":               {`{"defaultAction": "SCMP_ACT_LOG"}` + strings.Repeat(" ", MaxProfile), ErrInvalid},
	} {
		profile, err := ParseSeccomp([]byte(test.text))
		if !errors.Is(err, test.want) || err == nil && profile.DefaultAction == "" {
			t.Errorf("%s: %+v, %v, want %v", name, profile, err, test.want)
		}
	}
}

// A privileged container has everything of its machine's; one that is not has
// the masks of the kubelet's procMount, and an own process namespace by default.
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
		"nothing said":        {nil, len(maskedPaths()), len(readonlyPaths()), len(defaultCapabilities), false, true, "", false},
		"masks of its own":    {&security{Seccomp: runtimeDefault, MaskedPaths: []string{"/proc/x"}}, 1, 0, len(defaultCapabilities), true, true, "", false},
		"unmasked":            {&security{Seccomp: runtimeDefault, NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}}, 0, 0, len(defaultCapabilities), true, true, "", false},
		"privileged":          {&security{Seccomp: runtimeDefault, Privileged: true, NoNewPrivs: true, MaskedPaths: []string{"/proc/x"}, Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}}, 0, 0, len(allCapabilities), false, false, "", true},
		"pod's processes":     {&security{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}}, len(maskedPaths()), len(readonlyPaths()), len(defaultCapabilities), false, true, agentv1.PIDPod, false},
		"another's processes": {&security{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: "c1"}}, len(maskedPaths()), len(readonlyPaths()), len(defaultCapabilities), false, true, agentv1.PIDTarget + "c1", false},
		"user namespace":      {&security{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: &runtimeapi.UserNamespace{}}}, len(maskedPaths()), len(readonlyPaths()), len(defaultCapabilities), false, true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := Spec(Input{Container: &runtimeapi.ContainerConfig{
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
	if _, err := Spec(Input{Container: &runtimeapi.ContainerConfig{Command: []string{"a"}, Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: host}}}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("the host's processes: %v", err)
	}
	unread := &security{Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/x"}}
	if _, err := Spec(Input{Container: &runtimeapi.ContainerConfig{Command: []string{"a"}, Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: unread}}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a profile that was not read: %v", err)
	}
}

func TestSysctlsOfTheMachine(t *testing.T) {
	for name, allowed := range map[string]bool{
		"vm.max_map_count": true, "vm/overcommit_memory": true, "fs.file-max": true, "fs.inotify.max_user_watches": true, "kernel.pid_max": true,
		"kernel.shmmax": true, "net.core.somaxconn": true, "net/ipv4/conf/eth0.1/forwarding": true, "fs.mqueue.msg_max": true,
		"kernel.core_pattern": false, "kernel.modprobe": false, "kernel.modules_disabled": false, "kernel.panic": false, "fs.suid_dumpable": false,
		"fs.binfmt_misc.register": false, "dev.cdrom.debug": false, "vm/../kernel/core_pattern": false, "kernel/yama/ptrace_scope": false,
	} {
		_, err := Sysctls(&runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{Sysctls: map[string]string{name: "1"}}})
		if (err == nil) != allowed || err != nil && !errors.Is(err, ErrNotSupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStorageLimit(t *testing.T) {
	for limit, want := range map[string]bool{"": true, "1048576": true, "0": false, "-1": false, "lots": false} {
		config := &runtimeapi.ContainerConfig{Command: []string{"a"}, Annotations: map[string]string{annotations.Storage: limit}}
		spec, err := Spec(Input{Container: config})
		if (err == nil) != want || err != nil && !errors.Is(err, ErrInvalid) || err == nil && spec.Annotations[agentv1.StorageLimit] != limit {
			t.Errorf("%q: %v", limit, err)
		}
	}
}
