package nri

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

func podConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name}}
}

func config(name string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: name}}
}

// TestLife: a plugin is notified of each event once, in order.
func TestLife(t *testing.T) {
	w := newWorld(t)
	w.fake.pods["old"], w.fake.containers["old-c"] = true, "old"
	w.start(t)
	p := &plugin{}
	w.join(t, "life", p)
	ctx := t.Context()
	for range 2 { // a kubelet may call twice
		if _, err := w.Plugins.RunPodSandbox(ctx, podConfig("p"), ""); err != nil {
			t.Fatal(err)
		}
	}
	id, err := w.Plugins.CreateContainer(ctx, "p", config("c"), nil)
	if err == nil {
		err = w.Plugins.StartContainer(ctx, id)
	}
	if err == nil {
		err = w.Plugins.UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.StopContainer(ctx, id, 0); err != nil {
		t.Fatal(err)
	}
	w.send("p", id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	if err := errors.Join(w.StopPodSandbox(ctx, "p"), w.RemovePodSandbox(ctx, "p")); err != nil {
		t.Fatal(err)
	}
	w.send("p", "p-unknown", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	p.has(t, "sync 1 1", "run p 10.1.1.1+fd00::1", "create c", "created c", "start c", "started c true", "update c", "updated c",
		"end c 3", "delete c", "stop p", "remove p")
	// Calls for containers that plugins do not know go straight to the runtime.
	if err := w.Plugins.StartContainer(ctx, "other"); err != nil {
		t.Error(err)
	}
}

// TestAdjust: supported adjustments are applied, and unsupported ones are refused by name.
func TestAdjust(t *testing.T) {
	w := newWorld(t)
	w.start(t)
	var a *api.ContainerAdjustment
	p := &plugin{create: func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) { return a, nil, nil }}
	w.join(t, "adjusts", p)
	a = &api.ContainerAdjustment{}
	a.AddAnnotation("example.org/a", "b")
	a.AddEnv("NEW", "2")
	a.RemoveEnv("OLD")
	a.SetArgs([]string{"true", "x"})
	a.AddRlimit("RLIMIT_CORE", 7, 5)
	a.SetLinuxMemoryLimit(1 << 20)
	a.SetLinuxCPUQuota(5000)
	a.SetLinuxPidLimits(9)
	a.AddLinuxUnified("memory.high", "1000")
	score := 77
	a.SetLinuxOomScoreAdj(&score)
	id, err := w.Plugins.CreateContainer(t.Context(), "p", config("c"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := w.specs[id]
	r := s.Linux.Resources
	if s.Annotations["example.org/a"] != "b" || !slices.Contains(s.Process.Env, "NEW=2") || slices.Contains(s.Process.Env, "OLD=1") ||
		!slices.Equal(s.Process.Args, []string{"true", "x"}) ||
		!slices.Contains(s.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_CORE", Hard: 7, Soft: 5}) ||
		*s.Process.OOMScoreAdj != 77 ||
		*r.Memory.Limit != 1<<20 || *r.Memory.Swap != 1<<20 || *r.CPU.Quota != 5000 || *r.Pids.Limit != 9 || r.Unified["memory.high"] != "1000" {
		t.Errorf("%+v\n%+v\n%+v", s.Annotations, s.Process, r)
	}
	if len(r.Devices) == 0 {
		t.Error("the device rules are missing")
	}
	for word, change := range map[string]func(*api.ContainerAdjustment){
		"/usr/lib": func(a *api.ContainerAdjustment) {
			a.AddMount(&api.Mount{Source: "/usr/lib", Destination: "/x", Type: "bind"})
		},
		"/dev/sda":    func(a *api.ContainerAdjustment) { a.AddDevice(&api.LinuxDevice{Path: "/dev/sda", Type: "b"}) },
		"hooks":       func(a *api.ContainerAdjustment) { a.AddHooks(&api.Hooks{Poststop: []*api.Hook{{Path: "/bin/true"}}}) },
		"a.org/b=c":   func(a *api.ContainerAdjustment) { a.AddCDIDevice(&api.CDIDevice{Name: "a.org/b=c"}) },
		"io.bulkhead": func(a *api.ContainerAdjustment) { a.AddAnnotation("io.bulkhead.all-devices", "true") },
		"/group":      func(a *api.ContainerAdjustment) { a.SetLinuxCgroupsPath("/group") },
		"I/O":         func(a *api.ContainerAdjustment) { a.SetLinuxBlockIOClass("fast") },
		"RDT":         func(a *api.ContainerAdjustment) { a.SetLinuxRDTClass("fast") },
		"sysctl":      func(a *api.ContainerAdjustment) { a.SetLinuxSysctl("net.core.somaxconn", "1") },
		"network":     func(a *api.ContainerAdjustment) { a.AddOrReplaceNamespace(&api.LinuxNamespace{Type: "network"}) },
		"seccomp":     func(a *api.ContainerAdjustment) { a.SetLinuxSeccompPolicy(&api.LinuxSeccomp{DefaultAction: "x"}) },
		`"A=B"`:       func(a *api.ContainerAdjustment) { a.AddEnv("A=B", "x") },
	} {
		a = &api.ContainerAdjustment{}
		change(a)
		_, err := w.Plugins.CreateContainer(t.Context(), "p", config("bad"), nil)
		want := codes.Unimplemented
		if word == `"A=B"` || word == "io.bulkhead" {
			want = codes.InvalidArgument
		}
		if grpccode.Of(err) != want || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
	if c, _ := w.container("p-bad"); c != nil {
		t.Error("a container that was not created is known")
	}
}

// TestUndone: a plugin is notified if a container that it adjusted was not created.
func TestUndone(t *testing.T) {
	w := newWorld(t)
	w.start(t)
	p := &plugin{}
	w.join(t, "undone", p)
	w.fail = errors.New("no room")
	if _, err := w.Plugins.CreateContainer(t.Context(), "p", config("c"), nil); !errors.Is(err, w.fail) {
		t.Error(err)
	}
	p.has(t, "sync 0 0", "create c", "delete c")
}

// TestUpdate: plugins change limits, both on request and unsolicited.
func TestUpdate(t *testing.T) {
	w := newWorld(t)
	w.start(t)
	p := &plugin{}
	w.join(t, "updates", p)
	ctx := t.Context()
	for _, name := range []string{"a", "b"} {
		if _, err := w.Plugins.CreateContainer(ctx, "p", config(name), nil); err != nil {
			t.Fatal(err)
		}
	}
	change := func(id string, shares uint64) *api.ContainerUpdate {
		u := &api.ContainerUpdate{ContainerId: id}
		u.SetLinuxCPUShares(shares)
		return u
	}
	p.update = func(*api.Container, *api.LinuxResources) ([]*api.ContainerUpdate, error) {
		return []*api.ContainerUpdate{change("p-a", 20), change("p-b", 30)}, nil
	}
	limits := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 10, MemoryLimitInBytes: 99}}
	if err := w.Plugins.UpdateContainerResources(ctx, "p-a", limits); err != nil {
		t.Fatal(err)
	}
	if a, b := w.updates["p-a"], w.updates["p-b"]; a.GetCpuShares() != 20 || a.GetMemoryLimitInBytes() != 99 || b.GetCpuShares() != 30 {
		t.Errorf("%v, %v", a, b)
	}
	failed, err := p.stub.UpdateContainers([]*api.ContainerUpdate{change("p-b", 40), change("nobody", 1)})
	if err != nil || len(failed) != 1 || failed[0].GetContainerId() != "nobody" {
		t.Errorf("failed %v, %v", failed, err)
	}
	w.fake.mu.Lock()
	defer w.fake.mu.Unlock()
	if got := w.updates["p-b"].GetCpuShares(); got != 40 {
		t.Errorf("shares %d", got)
	}
}

// TestRefusingPlugin: a pod that a plugin refuses is removed. The error names the pod and the reason.
func TestRefusingPlugin(t *testing.T) {
	w := newWorld(t)
	w.start(t)
	w.join(t, "refuses", &plugin{run: errors.New("not today")})
	_, err := w.Plugins.RunPodSandbox(t.Context(), podConfig("p"), "")
	if err == nil || !strings.Contains(err.Error(), "not today") || !strings.Contains(err.Error(), "pod p") || w.fake.pods["p"] {
		t.Errorf("%v, pods %v", err, w.fake.pods)
	}
}

// TestHangingPlugin: a hanging plugin is dropped after the deadline. The request continues without it, or fails with
// its name if it is required. A dead plugin is dropped too.
func TestHangingPlugin(t *testing.T) {
	never := make(chan struct{})
	for name, required := range map[string]bool{"any": false, "required": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start(t)
			p := &plugin{create: func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
				<-never
				return nil, nil, nil
			}}
			w.join(t, "hangs", p, stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: required}))
			begun := time.Now()
			_, err := w.Plugins.CreateContainer(t.Context(), "p", config("c"), nil)
			if required != (err != nil && strings.Contains(err.Error(), "hangs")) {
				t.Errorf("the container: %v", err)
			}
			if took := time.Since(begun); took > testdeadline.For(2*api.DefaultPluginRequestTimeout) {
				t.Errorf("it took %v", took)
			}
			if _, err := w.Plugins.CreateContainer(t.Context(), "p", config("next"), nil); err != nil {
				t.Errorf("the next one: %v", err)
			}
		})
	}
	t.Cleanup(func() { close(never) })
	t.Run("dead", func(t *testing.T) {
		w := newWorld(t)
		w.start(t)
		p := &plugin{}
		w.join(t, "dies", p)
		p.stub.Stop()
		if _, err := w.Plugins.CreateContainer(t.Context(), "p", config("c"), nil); err != nil {
			t.Error(err)
		}
	})
}

// TestUntrusted: programs that another user may change are not started.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "10-plugin")
	if err := errors.Join(os.WriteFile(program, nil, 0o700), os.Chmod(program, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Dir: dir, Conf: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("a world-writable program: %v", err)
	}
	if err := errors.Join(os.Chmod(program, 0o700), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Dir: dir, Conf: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("a world-writable directory: %v", err)
	}
}
