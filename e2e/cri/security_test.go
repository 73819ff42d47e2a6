package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
)

type security = runtimeapi.LinuxContainerSecurityContext

// check is a container with a security context, and the expected output of a script in it.
type check struct {
	name     string
	security *security
	script   string
	want     string
}

// runChecks runs each script in a container of its own.
func (n *node) runChecks(
	ctx context.Context, t *testing.T, pod string, config *runtimeapi.PodSandboxConfig, all []check, also ...func(l check, id string),
) {
	t.Helper()
	for _, l := range all {
		id := n.sleeper(ctx, t, pod, l.name, config, func(c *runtimeapi.ContainerConfig) {
			if l.security.NamespaceOptions == nil {
				l.security.NamespaceOptions = c.Linux.SecurityContext.NamespaceOptions
			}
			c.Linux.SecurityContext = l.security
		})
		for _, f := range also {
			f(l, id)
		}
		if got := strings.TrimSpace(n.Sh(ctx, t, id, l.script)); got != l.want {
			t.Errorf("%s: %q, want %q", l.name, got, l.want)
		}
		if _, err := n.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
	}
}

func number(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }

// users: the users and groups of a container's processes.
func users(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("users")
	pod := n.podOf(ctx, t, config)
	const who = "echo $(id -u):$(id -g):$(id -G)"
	n.runChecks(ctx, t, pod, config, []check{
		{"root", &security{}, who, "0:0:0"},
		{"user", &security{RunAsUser: number(1234)}, who, "1234:0:0"},
		{"group", &security{RunAsUser: number(1234), RunAsGroup: number(55), SupplementalGroups: []int64{77}}, who, "1234:55:55 77"},
		{"strict", &security{
			RunAsUser: number(1234), RunAsGroup: number(55), SupplementalGroups: []int64{77},
			SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
		}, who, "1234:55:55 77"},
		{"name", &security{RunAsUsername: "demo"}, who, "1000:1000:1000 2000"},
	}, func(l check, id string) {
		u := n.containerOf(ctx, t, id).GetUser().GetLinux()
		got := fmt.Sprintf("%d:%d:%s", u.GetUid(), u.GetGid(), strings.Trim(fmt.Sprint(u.GetSupplementalGroups()), "[]"))
		if u == nil || got != l.want {
			t.Errorf("%s: the status shows user %s (%v)", l.name, got, u)
		}
	})
	c := critest.Container("named", "true")
	c.Linux.SecurityContext = &security{RunAsUsername: "nobody-of-that-name"}
	_, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: config})
	expect(t, "a user who is not in the image", err, codes.InvalidArgument)
	if err != nil && !strings.Contains(err.Error(), "nobody-of-that-name") {
		t.Errorf("a user who is not in the image: %v", err)
	}
	res, err := n.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil || !res.GetFeatures().GetSupplementalGroupsPolicy() {
		t.Errorf("the policy of groups is not advertised: %v, %v", res, err)
	}
}

// privileges: capabilities, no_new_privs, masked and read-only paths.
func privileges(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("privileges")
	pod := n.podOf(ctx, t, config)
	const caps = "awk '/CapEff|CapBnd|NoNewPrivs/{print $2}' /proc/self/status | tr '\n' ' '"
	n.runChecks(ctx, t, pod, config, []check{
		{"default", &security{}, caps, "00000000a80425fb 00000000a80425fb 0"},
		{"none", &security{
			Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}},
		}, caps, "0000000000000000 0000000000000000 0"},
		{"one", &security{Capabilities: &runtimeapi.Capability{
			AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"},
		}, NoNewPrivs: true}, caps, "0000000000001000 0000000000001000 1"},
		{"masked", &security{
			Seccomp: &runtimeapi.SecurityProfile{}, MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
		}, "cat /proc/kcore | wc -c; echo x 2>/dev/null >/proc/sys/kernel/hostname || echo refused", "0\nrefused"},
		{"rootfs", &security{ReadonlyRootfs: true}, "touch /x 2>/dev/null || echo refused", "refused"},
		{"privileged", &security{Privileged: true},
			"mkdir /m && mount -t tmpfs t /m && echo mounted; awk '/CapBnd/{print length($2)}' /proc/self/status",
			"mounted\n16"},
		{"pod's processes", &security{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD},
		}, "[ $(cat /proc/1/comm) != sleep ] && echo shared", "shared"},
	})
}

// seccomp: the seccomp profiles of a container.
func seccomp(ctx context.Context, t *testing.T, n *node) {
	dir := n.o.Roots.Seccomp()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	profile := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(filepath.Join(dir, "nodirs.json"), []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	config := critest.Pod("seccomp")
	pod := n.podOf(ctx, t, config)
	of := func(kind runtimeapi.SecurityProfile_ProfileType, ref string) *security {
		return &security{Seccomp: &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: ref}}
	}
	const mode = "awk '/^Seccomp:/{print $2}' /proc/self/status; "
	n.runChecks(ctx, t, pod, config, []check{
		{"default", of(runtimeapi.SecurityProfile_RuntimeDefault, ""), mode + "unshare -U true 2>/dev/null || echo refused", "2\nrefused"},
		{"unconfined", of(runtimeapi.SecurityProfile_Unconfined, ""), mode, "0"},
		{"localhost", of(runtimeapi.SecurityProfile_Localhost, filepath.Join(dir, "nodirs.json")),
			mode + "mkdir /d 2>/dev/null || echo refused", "2\nrefused"},
	})
	for _, ref := range []string{"none.json", "../../etc/passwd"} {
		c := critest.Container("bad", "true")
		c.Linux.SecurityContext = of(runtimeapi.SecurityProfile_Localhost, ref)
		_, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: config})
		expect(t, "profile "+ref, err, codes.InvalidArgument)
	}
}

// refused: unsupported features are refused with a reason, and nothing is left of the container.
func refused(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("refused")
	pod := n.podOf(ctx, t, config)
	secure := func(s *security) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) { c.Linux.SecurityContext = s }
	}
	profile := func(kind runtimeapi.SecurityProfile_ProfileType) *security {
		return &security{Apparmor: &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: "own"}}
	}
	for _, tt := range []struct {
		word   string
		code   codes.Code
		change func(*runtimeapi.ContainerConfig)
	}{
		{"SELinux", codes.Unimplemented, secure(&security{SelinuxOptions: &runtimeapi.SELinuxOption{Type: "t"}})},
		{"AppArmor", codes.Unimplemented, secure(profile(runtimeapi.SecurityProfile_Localhost))},
		{"AppArmor", codes.Unimplemented, secure(profile(runtimeapi.SecurityProfile_RuntimeDefault))},
		{"capability", codes.InvalidArgument, secure(&security{Capabilities: &runtimeapi.Capability{AddCapabilities: []string{"X"}}})},
		{"run_as_group", codes.InvalidArgument, secure(&security{RunAsGroup: number(5)})},
		{"range", codes.InvalidArgument, secure(&security{RunAsUser: number(-1)})},
		{"/dev/sda", codes.Unimplemented, func(c *runtimeapi.ContainerConfig) {
			c.Devices = []*runtimeapi.Device{{HostPath: "/dev/sda", ContainerPath: "/dev/x"}}
		}},
		{"example.com/card=none", codes.FailedPrecondition, func(c *runtimeapi.ContainerConfig) {
			c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "example.com/card=none"}}
		}},
		{"host path", codes.Unimplemented, func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/proc/sys", ContainerPath: "/x"}}
		}},
		{"log", codes.InvalidArgument, func(c *runtimeapi.ContainerConfig) { c.LogPath = "../up.log" }},
		{"image", codes.NotFound, func(c *runtimeapi.ContainerConfig) { c.Image.Image = "localhost/none:1" }},
	} {
		c := critest.Container("c", "true")
		tt.change(c)
		_, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: config})
		expect(t, tt.word, err, tt.code)
		if err != nil && !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: the reason is %v", tt.word, err)
		}
	}
	unconfined := n.sleeper(ctx, t, pod, "c", config, secure(&security{
		Apparmor: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
	}))
	res, err := n.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: pod}})
	if err != nil || len(res.GetContainers()) != 1 || res.GetContainers()[0].GetId() != unconfined {
		t.Errorf("containers %v, %v", res, err)
	}
	for word, change := range map[string]func(*runtimeapi.NamespaceOption){
		"hostPID": func(o *runtimeapi.NamespaceOption) { o.Pid = runtimeapi.NamespaceMode_NODE },
		"hostIPC": func(o *runtimeapi.NamespaceOption) { o.Ipc = runtimeapi.NamespaceMode_NODE },
		"hostUsers": func(o *runtimeapi.NamespaceOption) {
			o.UsernsOptions = &runtimeapi.UserNamespace{Uids: []*runtimeapi.IDMapping{{HostId: 1 << 16, Length: 1 << 16}}}
		},
	} {
		bad := critest.Pod("bad")
		bad.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{}}
		change(bad.Linux.SecurityContext.NamespaceOptions)
		_, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: bad})
		expect(t, word, err, codes.Unimplemented)
		if err != nil && !strings.Contains(err.Error(), word) {
			t.Errorf("%s: the reason is %v", word, err)
		}
	}
}

// sysctls: a pod's sysctls are set in its VM. Unsafe ones are refused.
func sysctls(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("sysctls")
	config.Linux.Sysctls = map[string]string{"net.core.somaxconn": "777", "kernel.shm_rmid_forced": "1", "vm.max_map_count": "99999"}
	pod := n.podOf(ctx, t, config)
	c := n.sleeper(ctx, t, pod, "c", config, nil)
	got := n.Sh(ctx, t, c, "cat /proc/sys/net/core/somaxconn /proc/sys/kernel/shm_rmid_forced /proc/sys/vm/max_map_count")
	if got != "777\n1\n99999\n" {
		t.Errorf("sysctls %q", got)
	}
	bad := critest.Pod("bad")
	bad.Linux.Sysctls = map[string]string{"kernel.core_pattern": "|/bin/sh"}
	_, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: bad})
	expect(t, "kernel.core_pattern", err, codes.Unimplemented)
}
