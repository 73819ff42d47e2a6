package podconfig

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}

// full is a configuration as a kubelet sends it.
func full() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u", Attempt: 3},
		Hostname:     "web-1",
		LogDirectory: "/var/log/pods/web",
		DnsConfig: &runtimeapi.DNSConfig{
			Servers: []string{"10.0.0.1", "10.0.0.2"}, Searches: []string{"a", "b"}, Options: []string{"ndots:5"},
		},
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8080}},
		Labels:       map[string]string{"l": "1"},
		Annotations:  map[string]string{"io.bulkhead.cpus": "2", "secret": "x"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods.slice/kubepods-podu.slice",
			Sysctls:      map[string]string{"net.core.somaxconn": "99"},
			Overhead:     &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1},
			Resources:    &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: -1, CpuShares: 1024, MemoryLimitInBytes: 1 << 40},
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				Privileged: true, RunAsUser: &runtimeapi.Int64Value{Value: 7},
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Network: runtimeapi.NamespaceMode_POD, Pid: runtimeapi.NamespaceMode_CONTAINER, Ipc: runtimeapi.NamespaceMode_POD,
					UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD},
				},
			},
		},
	}
}

func TestParse(t *testing.T) {
	want := Config{
		Name: "web", Namespace: "default", UID: "u", Hostname: "web-1", LogDirectory: "/var/log/pods/web",
		DNS:           &DNS{Servers: []string{"10.0.0.1", "10.0.0.2"}, Searches: []string{"a", "b"}, Options: []string{"ndots:5"}},
		Annotations:   map[string]string{"io.bulkhead.cpus": "2", "secret": "x"},
		CgroupParent:  "/kubepods.slice/kubepods-podu.slice",
		Sysctls:       map[string]string{"net.core.somaxconn": "99"},
		PID:           1,
		UserNamespace: true,
		Resources:     Resources{CPUPeriod: 100000, CPUQuota: -1, CPUShares: 1024, MemoryLimit: 1 << 40},
	}
	got, err := Parse(packed(t, full()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, m := range map[string]*anypb.Any{"nil": nil, "empty": packed(t, &runtimeapi.PodSandboxConfig{})} {
		if got, err := Parse(m); err != nil || !cmp.Equal(got, Config{}) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestParseModes(t *testing.T) {
	node := runtimeapi.NamespaceMode_NODE
	got, err := Parse(packed(t, &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{
			Network: node, Pid: node, Ipc: node, UsernsOptions: &runtimeapi.UserNamespace{Mode: node},
		}},
	}}))
	if err != nil || got.Network != Node || got.PID != Node || got.IPC != Node || got.UserNamespace {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	cut := packed(t, full())
	cut.Value = cut.Value[:len(cut.Value)-3]
	for name, m := range map[string]*anypb.Any{
		"another type":     {TypeUrl: "example.com/Config", Value: []byte{1}},
		"a cut message":    cut,
		"a number as text": {TypeUrl: Type, Value: []byte{2 << 3, 1}},
		"a number as map":  {TypeUrl: Type, Value: []byte{7 << 3, 1}},
		"text as a number": {TypeUrl: Type, Value: []byte{8<<3 | 2, 4, 5<<3 | 2, 2, 1<<3 | 2, 0}},
	} {
		if got, err := Parse(m); !errors.Is(err, errInvalid) {
			t.Errorf("%s: got %+v, %v, want errInvalid", name, got, err)
		}
	}
}

// FuzzParse: no message makes the decoder fail otherwise than by errInvalid.
func FuzzParse(f *testing.F) {
	f.Add(packed(f, full()).Value)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Parse(&anypb.Any{TypeUrl: Type, Value: b}); err != nil && !errors.Is(err, errInvalid) {
			t.Errorf("got %v", err)
		}
	})
}
