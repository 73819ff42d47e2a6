package spec

import (
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	imagev1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// TestArgs: the command replaces the entrypoint, and args replace the cmd.
func TestArgs(t *testing.T) {
	image := imagev1.ImageConfig{Entrypoint: []string{"entry", "-e"}, Cmd: []string{"cmd"}}
	tests := []struct {
		name          string
		command, args []string
		image         imagev1.ImageConfig
		want          []string
	}{
		{"the image's", nil, nil, image, []string{"entry", "-e", "cmd"}},
		{"args replace cmd", nil, []string{"a"}, image, []string{"entry", "-e", "a"}},
		{"command replaces both", []string{"c"}, nil, image, []string{"c"}},
		{"command and args", []string{"c"}, []string{"a"}, image, []string{"c", "a"}},
		{"image without entrypoint", nil, nil, imagev1.ImageConfig{Cmd: []string{"cmd"}}, []string{"cmd"}},
		{"args without entrypoint", nil, []string{"a"}, imagev1.ImageConfig{}, []string{"a"}},
		{"image without cmd", nil, nil, imagev1.ImageConfig{}, nil},
		{"empty command", []string{""}, nil, image, nil},
		{"zero byte", []string{"a\x00b"}, nil, image, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := args(test.command, test.args, test.image)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != (test.want == nil) || err != nil && !errors.Is(err, oci.ErrInvalid) {
				t.Errorf("error %v", err)
			}
		})
	}
	if diff := cmp.Diff([]string{"entry", "-e"}, image.Entrypoint); diff != "" {
		t.Errorf("the image was changed: %s", diff)
	}
}

// TestEnvironment: values are kept byte for byte.
func TestEnvironment(t *testing.T) {
	config := &runtimeapi.ContainerConfig{Tty: true, Envs: []*runtimeapi.KeyValue{
		{Key: "OPTS", Value: []byte("a=b=c")}, {Key: "QUOTED", Value: []byte(`  "x y"  `)}, {Key: "HOME", Value: []byte("/own")}, {Key: "EMPTY"},
	}}
	image := imagev1.ImageConfig{Env: []string{"HOME=/image", "ODD", "LANG=C"}}
	got, err := environment(config, image)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"HOME=/own", "ODD", "LANG=C", "OPTS=a=b=c", `QUOTED=  "x y"  `, "EMPTY=", "PATH=" + oci.DefaultPath, "TERM=xterm"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got, _ = environment(&runtimeapi.ContainerConfig{}, imagev1.ImageConfig{Env: []string{"PATH=/bin"}})
	if !slices.Equal(got, []string{"PATH=/bin"}) {
		t.Errorf("the image's PATH: %q", got)
	}
	for _, bad := range []*runtimeapi.KeyValue{{Key: ""}, {Key: "a=b"}, {Key: "a", Value: []byte("x\x00y")}} {
		_, err := environment(&runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{bad}}, imagev1.ImageConfig{})
		if !errors.Is(err, oci.ErrInvalid) {
			t.Errorf("variable %q: %v", bad.Key, err)
		}
	}
}

// TestPath: a container's PATH overrides its image's. Without either it is the default.
func TestPath(t *testing.T) {
	for _, tt := range []struct {
		name             string
		container, image string
		want             string
	}{
		{name: "neither", want: "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{name: "the image's", image: "/opt/image", want: "PATH=/opt/image"},
		{name: "the container's", container: "/opt/own", want: "PATH=/opt/own"},
		{name: "the container's over the image's", container: "/opt/own", image: "/opt/image", want: "PATH=/opt/own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config, image := container(), imagev1.ImageConfig{Env: []string{"LANG=C"}}
			if tt.image != "" {
				image.Env = append(image.Env, "PATH="+tt.image)
			}
			if tt.container != "" {
				config.Envs = []*runtimeapi.KeyValue{{Key: "PATH", Value: []byte(tt.container)}}
			}
			spec, err := whole(Input{ID: "c1", Container: config, Image: image})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, variable := range spec.Process.Env {
				if strings.HasPrefix(variable, "PATH=") {
					got = append(got, variable)
				}
			}
			if !slices.Equal(got, []string{tt.want}) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestWorkingDirectory: a container's working directory overrides its image's. Without either it is the root. A
// relative one is refused.
func TestWorkingDirectory(t *testing.T) {
	for _, tt := range []struct {
		name             string
		container, image string
		want             string // empty for an error
	}{
		{name: "neither", want: "/"},
		{name: "the image's", image: "/srv/image", want: "/srv/image"},
		{name: "the container's", container: "/srv/own", want: "/srv/own"},
		{name: "the container's over the image's", container: "/srv/own", image: "/srv/image", want: "/srv/own"},
		{name: "the container's over the image's that is relative", container: "/srv/own", image: "srv", want: "/srv/own"},
		{name: "the container's is relative", container: "srv", image: "/srv/image"},
		{name: "the image's is relative", image: "srv"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := container()
			config.WorkingDir = tt.container
			spec, err := whole(Input{ID: "c1", Container: config, Image: imagev1.ImageConfig{WorkingDir: tt.image}})
			if tt.want == "" {
				if !errors.Is(err, oci.ErrInvalid) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || spec.Process.Cwd != tt.want {
				t.Errorf("%+v, %v, want %q", spec, err, tt.want)
			}
		})
	}
}

func TestUser(t *testing.T) {
	type security = runtimeapi.LinuxContainerSecurityContext
	const strict = runtimeapi.SupplementalGroupsPolicy_Strict
	number := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	tests := []struct {
		name     string
		security *security
		image    string
		want     string
		fails    bool
	}{
		{"nothing", nil, "", "0", false},
		{"the image's", nil, "www:web", "www:web", false},
		{"number over the image's", &security{RunAsUser: number(7)}, "www", "7", false},
		{"root over the image's", &security{RunAsUser: number(0)}, "www", "0", false},
		{"name over the image's", &security{RunAsUsername: "mail"}, "www:web", "mail", false},
		{"name and group over the image's", &security{RunAsUsername: "mail:8"}, "www:web", "mail:8", false},
		{"another group of the image's user", &security{RunAsUsername: "www:8"}, "www:web", "www:8", false},
		{"strict with a name and a group", &security{RunAsUsername: "a:b", SupplementalGroupsPolicy: strict}, "", "a:b:strict", false},
		// A kubelet repeats the image's user and drops its group.
		{"the image's number", &security{RunAsUser: number(7)}, "7:web", "7:web", false},
		{"the image's name", &security{RunAsUsername: "www"}, "www:8", "www:8", false},
		{"the image's group alone", &security{RunAsUser: number(0)}, ":8", "0:8", false},
		{"the image's, with a group", &security{RunAsUser: number(7), RunAsGroup: number(9)}, "7:8", "7:9", false},
		{"number over the image's group", &security{RunAsUser: number(9)}, "7:8", "9", false},
		{"root's number over its name", &security{RunAsUser: number(0)}, "root:8", "0", false},
		{"the image's group of root", nil, ":web", "0:web", false},
		{"with group", &security{RunAsUser: number(7), RunAsGroup: number(8)}, "", "7:8", false},
		{"strict", &security{RunAsUser: number(7), SupplementalGroupsPolicy: strict}, "", "7::strict", false},
		{"strict with group", &security{RunAsUser: number(7), RunAsGroup: number(8), SupplementalGroupsPolicy: strict}, "", "7:8:strict", false},
		{"strict and the image's", &security{SupplementalGroupsPolicy: strict}, "www:web", "www:web:strict", false},
		{"strict and nothing", &security{SupplementalGroupsPolicy: strict}, "", "0::strict", false},
		{"another policy", &security{SupplementalGroupsPolicy: 7}, "", "", true},
		{"group alone", &security{RunAsGroup: number(8)}, "", "", true},
		{"out of range", &security{RunAsUser: number(-1)}, "", "", true},
		{"no change", &security{RunAsUser: number(1<<32 - 1)}, "", "", true},
		{"the largest", &security{RunAsUser: number(1<<32 - 2)}, "", "4294967294", false},
		{"no change of group", &security{RunAsUser: number(7), RunAsGroup: number(1<<32 - 1)}, "", "", true},
		{"no change of groups", &security{SupplementalGroups: []int64{1<<32 - 1}}, "", "", true},
		{"group out of range", &security{SupplementalGroups: []int64{1 << 40}}, "", "", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := user(test.security, test.image)
			if (err != nil) != test.fails {
				t.Fatalf("error %v", err)
			}
			if err == nil && got.Username != test.want {
				t.Errorf("username %q, want %q", got.Username, test.want)
			}
		})
	}
}

func capable(c *runtimeapi.Capability) *runtimeapi.LinuxContainerSecurityContext {
	return &runtimeapi.LinuxContainerSecurityContext{Capabilities: c}
}

func TestCapabilities(t *testing.T) {
	without := func(drop ...string) []string {
		return slices.DeleteFunc(oci.DefaultCapabilities(), func(name string) bool { return slices.Contains(drop, name) })
	}
	tests := []struct {
		name      string
		add, drop []string
		want      []string
	}{
		{"default", nil, nil, oci.DefaultCapabilities()},
		{"drop one", nil, []string{"CHOWN"}, without("CAP_CHOWN")},
		{"add one", []string{"NET_ADMIN"}, []string{"ALL"}, []string{"CAP_NET_ADMIN"}},
		{"full name, lower case", []string{"cap_net_admin"}, []string{"all"}, []string{"CAP_NET_ADMIN"}},
		{"drop wins", []string{"NET_ADMIN"}, []string{"ALL", "NET_ADMIN"}, []string{}},
		{"drop all", nil, []string{"ALL"}, []string{}},
		{"all but one", []string{"ALL"}, []string{"SYS_ADMIN"}, slices.Sorted(slices.Values(slices.DeleteFunc(oci.AllCapabilities(),
			func(n string) bool { return n == "CAP_SYS_ADMIN" })))},
		{"add all over drop all", []string{"ALL"}, []string{"ALL"}, slices.Sorted(slices.Values(oci.AllCapabilities()))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := capabilities(capable(&runtimeapi.Capability{AddCapabilities: test.add, DropCapabilities: test.drop}))
			if err != nil {
				t.Fatal(err)
			}
			for _, set := range [][]string{got.Bounding, got.Effective, got.Permitted} {
				if diff := cmp.Diff(test.want, set); diff != "" {
					t.Error(diff)
				}
			}
			if len(got.Inheritable)+len(got.Ambient) > 0 {
				t.Errorf("inheritable %v, ambient %v", got.Inheritable, got.Ambient)
			}
		})
	}
	if _, err := capabilities(capable(&runtimeapi.Capability{AddCapabilities: []string{"FLY"}})); !errors.Is(err, oci.ErrInvalid) {
		t.Errorf("unknown capability: %v", err)
	}
}

// container returns a configuration as package pod sends it.
func container() *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Command:  []string{"/bin/busybox", "true"},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 64 << 20,
				OomScoreAdj: 999},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

func TestSpecSharesTheVMsNamespaces(t *testing.T) {
	spec, err := whole(Input{ID: "c1", Container: container()})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []specs.LinuxNamespaceType
	for _, namespace := range spec.Linux.Namespaces {
		kinds = append(kinds, namespace.Type)
	}
	if diff := cmp.Diff([]specs.LinuxNamespaceType{specs.MountNamespace, specs.CgroupNamespace, specs.PIDNamespace}, kinds); diff != "" {
		t.Error(diff)
	}
	if len(spec.Linux.Sysctl) > 0 || spec.Hostname != "" {
		t.Error("the specification changes the whole VM")
	}
	if cpu := spec.Linux.Resources.CPU; *cpu.Quota != 50000 || *cpu.Period != 100000 || *cpu.Shares != 512 {
		t.Errorf("cpu %+v", cpu)
	}
	if group := spec.Linux.Resources.Unified["memory.oom.group"]; group != "1" {
		t.Errorf("memory.oom.group %q", group)
	}
	if *spec.Linux.Resources.Memory.Limit != 64<<20 || *spec.Process.OOMScoreAdj != 999 {
		t.Errorf("memory %d, score %d", *spec.Linux.Resources.Memory.Limit, *spec.Process.OOMScoreAdj)
	}
}

// TestSpecOfLittle: missing parts of a configuration cause no panic.
func TestSpecOfLittle(t *testing.T) {
	for _, config := range []*runtimeapi.ContainerConfig{
		{Command: []string{"a"}},
		{Command: []string{"a"}, Linux: &runtimeapi.LinuxContainerConfig{}},
		{Command: []string{"a"}, Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2}}},
		{Command: []string{"a"}, Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{}}},
	} {
		spec, err := whole(Input{Container: config})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(spec); err != nil {
			t.Error(err)
		}
		if len(spec.Linux.Resources.Unified) > 0 {
			t.Errorf("without a limit of memory: %v", spec.Linux.Resources.Unified)
		}
	}
	if _, err := whole(Input{}); !errors.Is(err, oci.ErrInvalid) {
		t.Errorf("no configuration: %v", err)
	}
	if _, err := oci.Exec(nil, []string{"a"}, false); !errors.Is(err, oci.ErrInvalid) {
		t.Errorf("exec without a specification: %v", err)
	}
}

// dirs are the directories of the tests' volumes.
var dirs = layout.Dirs{Kubelet: "/kubelet", Own: "/own"}

func TestMounts(t *testing.T) {
	config := container()
	volume := func(name, at string, readonly bool) *runtimeapi.Mount {
		return &runtimeapi.Mount{HostPath: "/own/u/" + layout.EmptyDir + "/" + name, ContainerPath: at, Readonly: readonly}
	}
	config.Mounts = []*runtimeapi.Mount{
		volume("inner", "/data/inner", true), volume("data", "/data", false),
	}
	options := runtimev1.PodOptions{EmptyDirs: map[string]containerv1.Dir{"inner": {Medium: containerv1.Memory, Size: 1024}}}
	spec, err := whole(Input{Container: config, Options: options, Volumes: dirs})
	if err != nil {
		t.Fatal(err)
	}
	var volumes []specs.Mount
	for _, mount := range spec.Mounts {
		if mount.Type == "bulkhead.emptydir" {
			volumes = append(volumes, mount)
		}
		if strings.Contains(mount.Source, "host") {
			t.Errorf("a path of the host: %+v", mount)
		}
	}
	want := []specs.Mount{
		{Destination: "/data", Type: "bulkhead.emptydir", Source: "data", Options: []string{"rbind", "rprivate", "rw"}},
		{Destination: "/data/inner", Type: "bulkhead.emptydir", Source: "inner",
			Options: []string{"rbind", "rprivate", "ro", "medium=Memory", "size=1024"}},
	}
	if diff := cmp.Diff(want, volumes); diff != "" {
		t.Error(diff)
	}
}

// TestMountsOfVolumes: each kind of volume has its encoding for the guest.
func TestMountsOfVolumes(t *testing.T) {
	options := runtimev1.PodOptions{FSGroup: 77, EmptyDirs: map[string]containerv1.Dir{"small": {Size: 1024, Mode: 0o1700}}}
	at := func(kind, rest string) string { return "/kubelet/pods/u/volumes/kubernetes.io~" + kind + "/" + rest }
	for _, tc := range []struct {
		name  string
		mount *runtimeapi.Mount
		want  specs.Mount
	}{
		{"config map", &runtimeapi.Mount{HostPath: at("configmap", "v"), Readonly: true},
			specs.Mount{Type: "bulkhead.files", Source: "v", Options: []string{"rbind", "rprivate", "ro", "group=77"}}},
		{"part", &runtimeapi.Mount{HostPath: at("secret", "v/a,b=c/d")},
			specs.Mount{Type: "bulkhead.files", Source: "v", Options: []string{"rbind", "rprivate", "rw", "group=77", "subpath=a,b=c/d"}}},
		{"part named as another kind", &runtimeapi.Mount{HostPath: at("empty-dir", "v/kubernetes.io~secret/x")},
			specs.Mount{Type: "bulkhead.emptydir", Source: "v", Options: []string{"rbind", "rprivate", "rw", "group=77",
				"subpath=kubernetes.io~secret/x"}}},
		{"empty dir", &runtimeapi.Mount{HostPath: at("empty-dir", "small"),
			Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, MountOptions: []string{"noexec", "nodev"}},
			specs.Mount{Type: "bulkhead.emptydir", Source: "small", Options: []string{"rbind", "rslave", "rw", "noexec", "nodev", "size=1024",
				"mode=1700", "group=77"}}},
		{"projected, recursively", &runtimeapi.Mount{HostPath: at("projected", "v"), Readonly: true, RecursiveReadOnly: true},
			specs.Mount{Type: "bulkhead.files", Source: "v", Options: []string{"rbind", "rprivate", "rro", "group=77"}}},
		{"image", &runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "sha256:1"}, ImageSubPath: "etc"},
			specs.Mount{Type: "bulkhead.image", Source: "sha256:1", Options: []string{"rbind", "rprivate", "ro", "subpath=etc"}}},
	} {
		config := container()
		tc.mount.ContainerPath, tc.want.Destination = "/at", "/at"
		config.Mounts = []*runtimeapi.Mount{tc.mount}
		spec, err := whole(Input{Container: config, Options: options, Volumes: dirs})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, spec.Mounts[len(spec.Mounts)-1]); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func TestMountsRefused(t *testing.T) {
	good := "/own/v/" + layout.EmptyDir + "/v"
	for name, mount := range map[string]*runtimeapi.Mount{
		"no host path":                       {ContainerPath: "/x"},
		"a relative host path":               {HostPath: "etc", ContainerPath: "/x"},
		"relative":                           {HostPath: good, ContainerPath: "x"},
		"root":                               {HostPath: good, ContainerPath: "/a/.."},
		"writable and recursively read-only": {HostPath: good, ContainerPath: "/x", RecursiveReadOnly: true},
		"an option":                          {HostPath: good, ContainerPath: "/x", MountOptions: []string{"exec"}},
		"bidirectional": {HostPath: good, ContainerPath: "/x",
			Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
	} {
		t.Run(name, func(t *testing.T) {
			config := container()
			config.Mounts = []*runtimeapi.Mount{mount}
			if _, err := whole(Input{Container: config, Volumes: dirs}); !errors.Is(err, oci.ErrInvalid) &&
				!errors.Is(err, oci.ErrNotSupported) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestHostPaths: a path outside the volumes is a path of the host, even if its parts have the names of volumes.
func TestHostPaths(t *testing.T) {
	for _, path := range []string{
		"/etc", "/x/kubernetes.io~empty-dir/y", "/own/v/" + layout.EmptyDir, "/own/v/" + layout.EmptyDir + "/v/../../../etc/shadow",
	} {
		config := container()
		config.Mounts = []*runtimeapi.Mount{{HostPath: path, ContainerPath: "/x", Readonly: true}}
		spec, err := whole(Input{Container: config, Volumes: dirs})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		mount := spec.Mounts[len(spec.Mounts)-1]
		m, err := containerv1.ParseMount(mount.Destination, mount.Type, mount.Source, mount.Options)
		if source, ok := m.Source.(containerv1.Share); err != nil || !ok || source.Name != path || !slices.Contains(m.Options, "ro") {
			t.Errorf("%s: %+v, %v", path, mount, err)
		}
	}
}

// TestFilesOfEtc: a volume at the place of a file of the VM or a door is mounted there.
func TestFilesOfEtc(t *testing.T) {
	for _, at := range []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf/", "/dev/termination-log", "/etc/../etc/hosts"} {
		for from, kind := range map[string]string{
			"/own/u/" + layout.ConfigMap + "/v/key": "bulkhead.files", "/own/u/" + layout.EmptyDir + "/v/key": "bulkhead.emptydir",
			"/kubelet/pods/u/volumes/" + layout.Secret + "/v/key": "bulkhead.files", "/etc/hosts": "bulkhead.share",
		} {
			config := container()
			config.Mounts = []*runtimeapi.Mount{{HostPath: from, ContainerPath: at}}
			spec, err := whole(Input{Container: config, Volumes: dirs, Termination: "/dev/termination-log"})
			if err != nil {
				t.Fatal(err)
			}
			last := spec.Mounts[len(spec.Mounts)-1]
			if last.Destination != path.Clean(at) || last.Type != kind {
				t.Errorf("%s at %s: %+v", from, at, last)
			}
		}
	}
	spec, err := whole(Input{Container: container(), Hosts: Hosts{Text: "text", ReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	want := specs.Mount{Destination: "/etc/hosts", Type: "bulkhead.file", Source: "text", Options: []string{"bind", "ro"}}
	if diff := cmp.Diff(want, spec.Mounts[len(spec.Mounts)-1]); diff != "" {
		t.Error(diff)
	}
}

// TestCovered: a volume replaces a default mount, and one at /dev replaces all below it.
func TestCovered(t *testing.T) {
	for at, gone := range map[string][]string{
		"/dev/shm/": {"/dev/shm"}, "/sys/fs/cgroup": {"/sys/fs/cgroup"}, "/dev": {"/dev", "/dev/pts", "/dev/mqueue", "/dev/shm"},
		"/etc": nil, "/device": nil,
	} {
		config := container()
		config.Mounts = []*runtimeapi.Mount{{HostPath: "/own/u/" + layout.EmptyDir + "/v", ContainerPath: at}}
		spec, err := whole(Input{Container: config, Volumes: dirs})
		if err != nil {
			t.Fatal(err)
		}
		usual, err := oci.New("")
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, m := range usual.Mounts {
			if !slices.Contains(gone, m.Destination) {
				want = append(want, m.Destination)
			}
		}
		for _, m := range spec.Mounts {
			got = append(got, m.Destination)
		}
		if diff := cmp.Diff(append(want, path.Clean(at)), got); diff != "" {
			t.Errorf("%s: %s", at, diff)
		}
	}
}

// TestOwnOptions: options beyond the CRI's fields are applied.
func TestOwnOptions(t *testing.T) {
	for _, tty := range []bool{true, false} {
		config := container()
		config.Tty = tty
		spec, err := whole(Input{Container: config, Own: runtimev1.ContainerOptions{
			Size: runtimev1.Size{Width: 77, Height: 33}, Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Hard: 7}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if size := spec.Process.ConsoleSize; (size != nil) != tty || tty && (size.Width != 77 || size.Height != 33) {
			t.Errorf("terminal %v: size %+v", tty, size)
		}
		if n := len(spec.Process.Rlimits); spec.Process.Rlimits[n-1].Hard != 7 {
			t.Errorf("limits %+v", spec.Process.Rlimits)
		}
		process, err := oci.Exec(spec, []string{"sh"}, true)
		if err != nil || process.ConsoleSize != nil {
			t.Errorf("an exec has the size of the container's terminal: %+v, %v", process, err)
		}
	}
	_, err := whole(Input{Container: container(), Own: runtimev1.ContainerOptions{Rlimits: []specs.POSIXRlimit{{Type: "x"}}}})
	if !errors.Is(err, oci.ErrInvalid) {
		t.Errorf("an unknown limit: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*runtimeapi.LinuxContainerSecurityContext){
		"selinux type": func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.SelinuxOptions = &runtimeapi.SELinuxOption{Type: "t", Level: "s0"}
		},
		"selinux categories": func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0:c1,c5"}
		},
		"host pid": func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := container()
			change(config.Linux.SecurityContext)
			if _, err := whole(Input{Container: config}); !errors.Is(err, oci.ErrNotSupported) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestUnlabelled: kubelet's clients may request the default level.
func TestUnlabelled(t *testing.T) {
	for _, options := range []*runtimeapi.SELinuxOption{nil, {}, {Level: "s0"}} {
		config := container()
		config.Linux.SecurityContext.SelinuxOptions = options
		if _, err := whole(Input{Container: config}); err != nil {
			t.Errorf("%v: %v", options, err)
		}
	}
}

func TestExecKeepsTheContainersProcess(t *testing.T) {
	spec, err := whole(Input{Container: container()})
	if err != nil {
		t.Fatal(err)
	}
	process, err := oci.Exec(spec, []string{"sh"}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(process.Env, "TERM=xterm") || slices.Contains(spec.Process.Env, "TERM=xterm") {
		t.Errorf("environments %q and %q", process.Env, spec.Process.Env)
	}
	if process.Args[0] != "sh" || spec.Process.Args[0] != "/bin/busybox" || !process.Terminal || spec.Process.Terminal {
		t.Errorf("process %+v", process)
	}
}
