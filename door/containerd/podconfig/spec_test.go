package podconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestSpec(t *testing.T) {
	c, err := Parse(packed(t, full()))
	if err != nil {
		t.Fatal(err)
	}
	got := c.Spec("s1", "/run/netns/x", "k8s.io", func(key string) bool { return key != "secret" })
	want := &specs.Spec{
		Version: specs.Version, Hostname: "web-1",
		Root:    &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{Args: []string{"/pause"}, Cwd: "/"},
		Annotations: map[string]string{
			"io.bulkhead.cpus":                        "2",
			"io.kubernetes.cri.container-type":        "sandbox",
			"io.kubernetes.cri.sandbox-id":            "s1",
			"io.kubernetes.cri.sandbox-name":          "web",
			"io.kubernetes.cri.sandbox-namespace":     "default",
			"io.kubernetes.cri.sandbox-uid":           "u",
			"io.kubernetes.cri.sandbox-log-directory": "/var/log/pods/web",
			"io.kubernetes.cri.sandbox-cpu-period":    "100000",
			"io.kubernetes.cri.sandbox-cpu-quota":     "-1",
			"io.kubernetes.cri.sandbox-cpu-shares":    "1024",
			"io.kubernetes.cri.sandbox-memory":        "1099511627776",
		},
		Linux: &specs.Linux{
			CgroupsPath: "kubepods-podu.slice:cri-containerd:s1",
			Sysctl:      map[string]string{"net.core.somaxconn": "99"},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace, Path: "/run/netns/x"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	host := Config{Network: Node, PID: Node, IPC: Node, CgroupParent: "/pods"}.Spec("s1", "", "k8s.io", func(string) bool { return true })
	if len(host.Linux.Namespaces) != 1 || host.Linux.CgroupsPath != "/pods/s1" {
		t.Errorf("on the host's namespaces: got %+v", host.Linux)
	}
	if got := (Config{}).Spec("s1", "", "k8s.io", nil).Linux.CgroupsPath; got != "/k8s.io/s1" {
		t.Errorf("without a parent group: got %s", got)
	}
}
