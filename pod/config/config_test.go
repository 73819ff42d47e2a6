package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

func TestResources(t *testing.T) {
	type r = corev1.ResourceRequirements
	type l = runtimeapi.LinuxContainerResources
	sidecar := func(requirements r) corev1.Container {
		always := corev1.ContainerRestartPolicyAlways
		return corev1.Container{Resources: requirements, RestartPolicy: &always}
	}
	initial := func(requirements r) corev1.Container { return corev1.Container{Resources: requirements} }
	limits := func(words ...string) r { return r{Limits: testpod.Resources(words...)} }
	none := &l{CpuPeriod: 100000, CpuShares: 2}
	tests := []struct {
		name       string
		containers []r
		qos        corev1.PodQOSClass
		first, sum *l // the first without the score
		scores     []int64
		init       []corev1.Container
		pod        *r
		unstated   bool
	}{
		{name: "nothing", containers: []r{{}}, qos: "BestEffort", first: none, sum: none, scores: []int64{1000}, unstated: true},
		{name: "limits alone are requests too", containers: []r{limits("cpu=500m", "memory=64Mi")}, qos: "Guaranteed",
			first: &l{CpuPeriod: 100000, CpuShares: 512, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20},
			sum:   &l{CpuPeriod: 100000, CpuShares: 512, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20}, scores: []int64{-997}},
		{name: "half and half", containers: []r{limits("cpu=500m", "memory=1Gi"), limits("cpu=500m", "memory=1Gi")}, qos: "Guaranteed",
			first: &l{CpuPeriod: 100000, CpuShares: 512, CpuQuota: 50000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 2 << 30}, scores: []int64{-997, -997}},
		{name: "requests", containers: []r{{Requests: testpod.Resources("cpu=2", "memory=300Mi")},
			{Requests: testpod.Resources("memory=100Mi")}}, qos: "Burstable",
			first: &l{CpuPeriod: 100000, CpuShares: 2048}, sum: &l{CpuPeriod: 100000, CpuShares: 2048, MemoryLimitInBytes: 400 << 20},
			scores: []int64{250, 750}, unstated: true},
		{name: "tiny", containers: []r{limits("cpu=1m")}, qos: "Burstable",
			first: &l{CpuPeriod: 100000, CpuShares: 2, CpuQuota: 1000}, sum: &l{CpuPeriod: 100000, CpuShares: 2, CpuQuota: 1000},
			scores: []int64{999}, unstated: true},
		{name: "one of two guaranteed", containers: []r{limits("cpu=1", "memory=1Gi"), {}}, qos: "Burstable",
			first: &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 1024, MemoryLimitInBytes: 1 << 30}, scores: []int64{3, 999}, unstated: true},
		{name: "request below the limit", containers: []r{{Limits: testpod.Resources("cpu=1", "memory=1Gi"),
			Requests: testpod.Resources("cpu=250m", "memory=1Gi")}}, qos: "Burstable",
			first: &l{CpuPeriod: 100000, CpuShares: 256, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 256, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30}, scores: []int64{3}},
		{name: "zero limits are none", containers: []r{limits("cpu=0", "memory=0")}, qos: "BestEffort", first: none, sum: none,
			scores: []int64{1000}, unstated: true},
		{name: "init below the others", containers: []r{limits("cpu=1", "memory=1Gi")}, qos: "Guaranteed",
			first: &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30}, scores: []int64{-997},
			init: []corev1.Container{initial(limits("cpu=500m", "memory=512Mi"))}},
		{name: "init above the others", containers: []r{limits("cpu=1", "memory=1Gi")}, qos: "Guaranteed",
			first: &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 2048, CpuQuota: 200000, MemoryLimitInBytes: 1 << 30}, scores: []int64{-997},
			init: []corev1.Container{initial(limits("cpu=2", "memory=512Mi")), initial(limits("cpu=1", "memory=1Gi"))}},
		{name: "init without a limit", containers: []r{limits("cpu=1", "memory=1Gi")}, qos: "Burstable",
			first: &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 1024, MemoryLimitInBytes: 1 << 30}, scores: []int64{3},
			init: []corev1.Container{initial(r{})}, unstated: true},
		{name: "a sidecar beside the others", containers: []r{limits("cpu=1", "memory=1Gi")}, qos: "Guaranteed",
			first: &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 1536, CpuQuota: 150000, MemoryLimitInBytes: 3 << 29}, scores: []int64{-997},
			init: []corev1.Container{sidecar(limits("cpu=500m", "memory=512Mi"))}},
		{name: "a sidecar before an init container", containers: []r{limits("cpu=1", "memory=1Gi")}, qos: "Guaranteed",
			first: &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 3072, CpuQuota: 300000, MemoryLimitInBytes: 3 << 30}, scores: []int64{-997},
			init: []corev1.Container{sidecar(limits("cpu=1", "memory=1Gi")), initial(limits("cpu=2", "memory=2Gi"))}},
		{name: "a sidecar after an init container", containers: []r{limits("cpu=1", "memory=1Gi")}, qos: "Guaranteed",
			first: &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 2048, CpuQuota: 200000, MemoryLimitInBytes: 2 << 30}, scores: []int64{-997},
			init: []corev1.Container{initial(limits("cpu=2", "memory=2Gi")), sidecar(limits("cpu=1", "memory=1Gi"))}},
		{name: "the pod's own limits", containers: []r{{}, limits("memory=64Mi")}, qos: "Guaranteed",
			first: &l{CpuPeriod: 100000, CpuShares: 2, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30},
			sum:   &l{CpuPeriod: 100000, CpuShares: 1024, CpuQuota: 100000, MemoryLimitInBytes: 1 << 30}, scores: []int64{-997, -997},
			pod: &r{Limits: testpod.Resources("cpu=1", "memory=1Gi"), Requests: testpod.Resources("cpu=1", "memory=1Gi")}},
		{name: "the pod's own requests", containers: []r{{Requests: testpod.Resources("memory=64Mi")}}, qos: "Burstable",
			first: none, sum: &l{CpuPeriod: 100000, CpuShares: 1024, MemoryLimitInBytes: 1 << 30}, scores: []int64{938},
			pod: &r{Requests: testpod.Resources("cpu=1", "memory=1Gi")}, unstated: true},
		{name: "the pod's limit of one kind", containers: []r{limits("memory=64Mi")}, qos: "Burstable",
			first: &l{CpuPeriod: 100000, CpuShares: 2, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20},
			sum:   &l{CpuPeriod: 100000, CpuShares: 512, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20}, scores: []int64{3},
			pod: &r{Limits: testpod.Resources("cpu=500m"), Requests: testpod.Resources("cpu=500m")}},
		{name: "huge pages", containers: []r{limits("memory=64Mi", "hugepages-2Mi=4Mi"), limits("memory=64Mi", "hugepages-2Mi=2Mi")},
			qos: "Burstable",
			first: &l{CpuPeriod: 100000, CpuShares: 2, MemoryLimitInBytes: 64 << 20,
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}}},
			sum: &l{CpuPeriod: 100000, CpuShares: 2, MemoryLimitInBytes: 128 << 20,
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 6 << 20}}},
			scores: []int64{500, 500}},
		{name: "huge pages of another", containers: []r{limits("memory=64Mi"), limits("memory=64Mi", "hugepages-2Mi=2Mi")}, qos: "Burstable",
			first: &l{CpuPeriod: 100000, CpuShares: 2, MemoryLimitInBytes: 64 << 20,
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}}},
			sum: &l{CpuPeriod: 100000, CpuShares: 2, MemoryLimitInBytes: 128 << 20,
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}}},
			scores: []int64{500, 500}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := testpod.New("Never")
			pod.Spec.InitContainers, pod.Spec.Resources = test.init, test.pod
			for _, requirements := range test.containers {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: requirements})
			}
			if got := podspec.QOS(pod); got != test.qos {
				t.Errorf("qos %s, want %s", got, test.qos)
			}
			for i, want := range test.scores {
				if got := oomScore(pod, &pod.Spec.Containers[i]); got != want {
					t.Errorf("score %d of container %d, want %d", got, i, want)
				}
			}
			first := proto.CloneOf(test.first)
			first.OomScoreAdj = test.scores[0]
			if diff := cmp.Diff(first, Resources(pod, &pod.Spec.Containers[0]), protocmp.Transform()); diff != "" {
				t.Errorf("container: %s", diff)
			}
			if diff := cmp.Diff(test.sum, SandboxResources(pod), protocmp.Transform()); diff != "" {
				t.Errorf("sandbox: %s", diff)
			}
			if got := Beyond(&Options{Pod: pod}).Unstated; got != test.unstated {
				t.Errorf("unstated: %v", got)
			}
		})
	}
}

func TestPodLimits(t *testing.T) {
	pod := testpod.New("Never", "a", "b")
	pod.Spec.Containers[0].Resources.Limits = testpod.Resources("ephemeral-storage=1Gi", "cpu=1")
	pod.Spec.Overhead = testpod.Resources("cpu=250m", "memory=300Mi")
	if got := Beyond(&Options{Pod: pod}); got.ScratchBytes != 1<<30 || got.WholeCPU || got.WholeMemory {
		t.Errorf("limits %+v", got)
	}
	if o := SandboxOverhead(pod); o.CpuQuota != 25000 || o.MemoryLimitInBytes != 300<<20 {
		t.Errorf("overhead %v", o)
	}
	pod.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: testpod.Resources("ephemeral-storage=3Gi")}}}
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: testpod.Resources("cpu=2", "memory=1Gi")}
	if got := Beyond(&Options{Pod: pod}); got.ScratchBytes != 3<<30 || !got.WholeCPU || !got.WholeMemory {
		t.Errorf("limits %+v", got)
	}
}

func TestSecurityContext(t *testing.T) {
	yes, no, id := true, false, func(n int64) *int64 { return &n }
	unmasked, strict, file, outside := corev1.UnmaskedProcMount, corev1.SupplementalGroupsPolicyStrict, "a/b.json", "../b.json"
	type image = runtimeapi.Image
	type sc = corev1.SecurityContext
	type psc = corev1.PodSecurityContext
	tests := []struct {
		name  string
		user  string // of the annotation
		pod   *psc
		own   *sc
		image *image
		check func(*runtimeapi.LinuxContainerSecurityContext) bool // nil: an error
	}{
		{name: "nothing", check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
			return c.RunAsUser == nil && c.Seccomp.ProfileType == runtimeapi.SecurityProfile_RuntimeDefault && !c.NoNewPrivs && !c.ReadonlyRootfs
		}},
		{name: "the image's number", image: &image{Uid: &runtimeapi.Int64Value{Value: 7}},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool { return c.RunAsUser.Value == 7 }},
		{name: "the image's name", image: &image{Username: "www"}, check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
			return c.RunAsUser == nil && c.RunAsUsername == "www"
		}},
		{name: "a name", user: "bob:audio", image: &image{Uid: &runtimeapi.Int64Value{Value: 7}},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
				return c.RunAsUser == nil && c.RunAsUsername == "bob:audio"
			}},
		{name: "a name beside a number", user: "bob", pod: &psc{RunAsUser: id(8)}},
		{name: "a name that may be root's", user: "bob", own: &sc{RunAsNonRoot: &yes}},
		{name: "the pod's over the image's", pod: &psc{RunAsUser: id(8)}, image: &image{Username: "www"},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
				return c.RunAsUser.Value == 8 && c.RunAsUsername == ""
			}},
		{name: "the container's over the pod's", pod: &psc{RunAsUser: id(8), RunAsGroup: id(80)}, own: &sc{RunAsUser: id(9)},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
				return c.RunAsUser.Value == 9 && c.RunAsGroup.Value == 80
			}},
		{name: "a group alone", own: &sc{RunAsGroup: id(5)}, image: &image{}, check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
			return c.RunAsUser.Value == 0 && c.RunAsGroup.Value == 5
		}},
		{name: "groups", pod: &psc{SupplementalGroups: []int64{3, 4}},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool { return len(c.SupplementalGroups) == 2 }},
		{name: "unconfined pod", pod: &psc{SeccompProfile: &corev1.SeccompProfile{Type: "Unconfined"}},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
				return c.Seccomp.ProfileType == runtimeapi.SecurityProfile_Unconfined
			}},
		{name: "confined container of an unconfined pod", pod: &psc{SeccompProfile: &corev1.SeccompProfile{Type: "Unconfined"}},
			own: &sc{SeccompProfile: &corev1.SeccompProfile{Type: "RuntimeDefault"}},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
				return c.Seccomp.ProfileType == runtimeapi.SecurityProfile_RuntimeDefault
			}},
		{name: "strict", own: &sc{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
				return c.NoNewPrivs && c.ReadonlyRootfs && c.Capabilities.DropCapabilities[0] == "ALL"
			}},
		{name: "privileged", own: &sc{Privileged: &yes}, check: func(c *runtimeapi.LinuxContainerSecurityContext) bool { return c.Privileged }},
		{name: "masked", check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
			return len(c.MaskedPaths) == 12 && len(c.ReadonlyPaths) == 5
		}},
		{name: "unmasked", own: &sc{ProcMount: &unmasked}, check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
			return len(c.MaskedPaths)+len(c.ReadonlyPaths) == 0
		}},
		{name: "strict groups", pod: &psc{SupplementalGroupsPolicy: &strict, SupplementalGroups: []int64{3}, FSGroup: id(9)},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
				return c.SupplementalGroupsPolicy == runtimeapi.SupplementalGroupsPolicy_Strict && cmp.Equal(c.SupplementalGroups, []int64{9, 3})
			}},
		{name: "a profile", pod: &psc{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: &file}},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool {
				return c.Seccomp.ProfileType == runtimeapi.SecurityProfile_Localhost && c.Seccomp.LocalhostRef == "/profiles/a/b.json"
			}},
		{name: "a profile outside", pod: &psc{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: &outside}}},
		{name: "a profile without a name", own: &sc{SeccompProfile: &corev1.SeccompProfile{Type: "Localhost"}}},
		{name: "not root, and root asked for", pod: &psc{RunAsNonRoot: &yes}, own: &sc{RunAsUser: id(0)},
			image: &image{Uid: &runtimeapi.Int64Value{Value: 5}}},
		{name: "not root, and the image's number", pod: &psc{RunAsNonRoot: &yes}, image: &image{Uid: &runtimeapi.Int64Value{Value: 5}},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool { return c.RunAsUser.Value == 5 }},
		{name: "not root, and root", pod: &psc{RunAsNonRoot: &yes}, image: &image{Uid: &runtimeapi.Int64Value{}}},
		{name: "not root, and a name", pod: &psc{RunAsNonRoot: &yes}, image: &image{Username: "www"}},
		{name: "not root, and nothing", pod: &psc{RunAsNonRoot: &yes}},
		{name: "not root", pod: &psc{RunAsNonRoot: &yes}, own: &sc{RunAsUser: id(1)},
			check: func(c *runtimeapi.LinuxContainerSecurityContext) bool { return c.RunAsUser.Value == 1 }},
		{name: "may be root after all", pod: &psc{RunAsNonRoot: &yes}, own: &sc{RunAsNonRoot: &no},
			check: func(*runtimeapi.LinuxContainerSecurityContext) bool { return true }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := testpod.New("Never", "main")
			pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext = test.pod, test.own
			pod.Annotations = map[string]string{"io.bulkhead.user/main": test.user}
			got, err := securityContext(&Options{Pod: pod, SeccompDir: "/profiles"}, &pod.Spec.Containers[0], test.image)
			if (err != nil) != (test.check == nil) {
				t.Fatalf("error %v", err)
			}
			if err == nil && !test.check(got) {
				t.Errorf("context %v", got)
			}
		})
	}
}

func TestSandboxConfig(t *testing.T) {
	size := resource.MustParse("1Mi")
	pod := testpod.New("Never", "main")
	pod.Labels, pod.Annotations = map[string]string{"app": "web", LabelUID: "forged"}, map[string]string{"note": "x"}
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1},
		{ContainerPort: 80, HostPort: 8080, HostIP: "127.0.0.2", Protocol: "TCP"}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "9"}}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "plain", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "ram", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory", SizeLimit: &size}}},
		{Name: "small", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}},
	}
	got := Sandbox(&Options{Pod: pod, Network: "none", Template: "off", Accel: "tcg", LogDir: "/logs",
		Ports: []*runtimeapi.PortMapping{{ContainerPort: 81, HostPort: 8081}}}, 2)
	if diff := cmp.Diff(map[string]string{"app": "web", labelName: "web", labelNamespace: "default", LabelUID: "u-1"},
		got.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	if diff := cmp.Diff(map[string]string{"note": "x"}, got.Annotations); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
	want := []*runtimeapi.PortMapping{{ContainerPort: 81, HostPort: 8081}, {ContainerPort: 80, HostPort: 8080, HostIp: "127.0.0.2"}}
	if diff := cmp.Diff(want, got.PortMappings, protocmp.Transform()); diff != "" {
		t.Errorf("ports: %s", diff)
	}
	if got.Metadata.Attempt != 2 || got.LogDirectory != "/logs" || got.Hostname != "web" || got.Linux.Sysctls["net.core.somaxconn"] != "9" {
		t.Errorf("configuration %v", got)
	}
	if len(pod.Annotations) != 1 || pod.Labels[LabelUID] != "forged" {
		t.Error("the pod was changed")
	}
}

func TestContainerConfig(t *testing.T) {
	pod := testpod.New("Never", "main")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	container := &pod.Spec.Containers[0]
	container.Command, container.Args = []string{"$(A)", "$$(A)"}, []string{"$(B)"}
	container.Env = []corev1.EnvVar{{Name: "A", Value: "x=y"}}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true}}
	got, err := Container(t.Context(), &Options{Pod: pod}, container, Launch{Ref: "sha256:1", Restarts: 3})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x=y", "$(A)", "$(B)"}, append(got.Command, got.Args...)); diff != "" {
		t.Error(diff)
	}
	if got.LogPath != "main/3.log" || got.Metadata.Attempt != 3 || got.Annotations[AnnotationRestarts] != "3" ||
		got.Annotations[annotationHash] == "" {
		t.Errorf("configuration %v", got)
	}
	mount := got.Mounts[0]
	if mount.HostPath != "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/data" || !mount.Readonly {
		t.Errorf("mount %v", mount)
	}
	container.VolumeMounts[0].Name = "other"
	if _, err := Container(t.Context(), &Options{Pod: pod}, container, Launch{}); err == nil {
		t.Error("a mount of no volume is accepted")
	}
}
