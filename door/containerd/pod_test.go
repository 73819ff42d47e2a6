package containerd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/containerd/podconfig"
)

// config returns a pod's configuration as containerd sends it.
func config(t *testing.T, c *runtimeapi.PodSandboxConfig) *anypb.Any {
	t.Helper()
	b, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: podconfig.Type, Value: b}
}

// podBundle returns the bundle of a sandbox, which containerd creates without a configuration.
func podBundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, rootName), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = podconfig.FilesIn(dir).Remove() })
	return dir
}

// runPod creates and starts a pod, and returns its bundle.
func (r *rig) runPod(t *testing.T, id string) string {
	t.Helper()
	dir := podBundle(t)
	_, err := r.sandbox.CreateSandbox(within(t), &sandboxv1.CreateSandboxRequest{
		SandboxID: id, BundlePath: dir, NetnsPath: "/run/netns/x", Annotations: map[string]string{"client": "1"},
		Options: config(t, &runtimeapi.PodSandboxConfig{
			Hostname: "web", Annotations: map[string]string{"io.bulkhead.cpus": "99"}, Metadata: &runtimeapi.PodSandboxMetadata{Name: "web"},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := r.sandbox.StartSandbox(within(t), &sandboxv1.StartSandboxRequest{SandboxID: id}); err != nil || res.Pid != 101 {
		t.Fatalf("StartSandbox: got %v, %v, want pid 101", res, err)
	}
	return dir
}

// TestPodLife follows a pod without a pause container from its creation to its end.
func TestPodLife(t *testing.T) {
	r, ctx := start(t), within(t)
	dir := r.runPod(t, "s")
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	if spec.Hostname != "web" || spec.Annotations["io.kubernetes.cri.container-type"] != "sandbox" || spec.Annotations["client"] != "1" ||
		spec.Annotations["io.bulkhead.cpus"] != "" {
		t.Errorf("config.json: got %s", b)
	}
	member := bundle(t)
	if _, err := r.task.Create(ctx, &taskv3.CreateTaskRequest{ID: "c", Bundle: member}); err != nil {
		t.Fatal(err)
	}
	b, err = os.ReadFile(filepath.Join(member, "config.json"))
	if err != nil || !strings.Contains(string(b), filepath.Join(dir, "resolv.conf")) {
		t.Errorf("the member's config.json: got %s, %v, want mounts of the pod's files", b, err)
	}
	status, err := r.sandbox.SandboxStatus(ctx, &sandboxv1.SandboxStatusRequest{SandboxID: "s", Verbose: true})
	if err != nil || status.State != stateReady || status.Pid != 101 || status.Info["state"] != "running" || status.CreatedAt == nil {
		t.Errorf("SandboxStatus: got %v, %v", status, err)
	}
	metrics, err := r.sandbox.SandboxMetrics(ctx, &sandboxv1.SandboxMetricsRequest{SandboxID: "s"})
	if err != nil || metrics.Metrics.ID != "s" || metrics.Metrics.Data.TypeUrl != "io.containerd.cgroups.v2.Metrics" {
		t.Errorf("SandboxMetrics: got %v, %v", metrics, err)
	}
	platform, err := r.sandbox.Platform(ctx, &sandboxv1.PlatformRequest{SandboxID: "s"})
	if err != nil || platform.Platform.OS != "linux" {
		t.Errorf("Platform: got %v, %v", platform, err)
	}
	wantCode(t, "PingSandbox", second(r.sandbox.PingSandbox(ctx, &sandboxv1.PingRequest{SandboxID: "s"})), codes.OK)
	wantCode(t, "UpdateSandbox", second(r.sandbox.UpdateSandbox(ctx, &sandboxv1.UpdateSandboxRequest{SandboxID: "s"})), codes.Unimplemented)
	wantCode(t, "Pids of the pod", second(r.task.Pids(ctx, &taskv3.PidsRequest{ID: "s"})), codes.NotFound)
	if res, err := r.task.Connect(ctx, &taskv3.ConnectRequest{ID: "s"}); err != nil || res.TaskPid != 101 {
		t.Errorf("Connect: got %v, %v", res, err)
	}
	for range 2 {
		wantCode(t, "StopSandbox", second(r.sandbox.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxID: "s", TimeoutSecs: 60})), codes.OK)
	}
	if res, err := r.sandbox.WaitSandbox(ctx, &sandboxv1.WaitSandboxRequest{SandboxID: "s"}); err != nil || res.ExitStatus != 137 {
		t.Errorf("WaitSandbox: got %v, %v, want 137", res, err)
	}
	status, err = r.sandbox.SandboxStatus(ctx, &sandboxv1.SandboxStatusRequest{SandboxID: "s"})
	if err != nil || status.State != stateNotReady || status.ExitedAt == nil || status.Info != nil {
		t.Errorf("SandboxStatus: got %v, %v", status, err)
	}
	if got := r.await(t, "c", ""); got != 137 {
		t.Errorf("the member's exit: got %d, want 137", got)
	}
	for range 2 {
		wantCode(t, "ShutdownSandbox", second(r.sandbox.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: "s"})), codes.OK)
	}
	if r.shutdowns.Load() == 0 || r.called("delete c") != 1 || r.called("delete s") != 1 {
		t.Errorf("%d ends, calls %q", r.shutdowns.Load(), r.calls)
	}
	wantCode(t, "the member", second(r.task.State(ctx, &taskv3.StateRequest{ID: "c"})), codes.NotFound)
	if left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir)); err != nil || len(left) > 0 {
		t.Errorf("%d mounts are left, %v", len(left), err)
	}
	for _, e := range r.all() {
		if strings.HasSuffix(e, " s") {
			t.Errorf("event %q of the pod, which containerd publishes itself", e)
		}
	}
}

func TestPodRefuses(t *testing.T) {
	r, ctx, dir := start(t), within(t), podBundle(t)
	userns := &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{
			UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD},
		}},
	}}
	for name, test := range map[string]struct {
		request *sandboxv1.CreateSandboxRequest
		want    codes.Code
	}{
		"no id":             {&sandboxv1.CreateSandboxRequest{BundlePath: dir}, codes.InvalidArgument},
		"a relative bundle": {&sandboxv1.CreateSandboxRequest{SandboxID: "s", BundlePath: "b"}, codes.InvalidArgument},
		"a root": {
			&sandboxv1.CreateSandboxRequest{SandboxID: "s", BundlePath: dir, Rootfs: []*types.Mount{{}}}, codes.Unimplemented,
		},
		"other options": {
			&sandboxv1.CreateSandboxRequest{SandboxID: "s", BundlePath: dir, Options: &anypb.Any{Value: []byte{1}}}, codes.InvalidArgument,
		},
		"a user namespace": {
			&sandboxv1.CreateSandboxRequest{SandboxID: "s", BundlePath: dir, Options: config(t, userns)}, codes.Unimplemented,
		},
		"no bundle directory": {&sandboxv1.CreateSandboxRequest{SandboxID: "s", BundlePath: filepath.Join(dir, "none")}, codes.Unknown},
	} {
		wantCode(t, name, second(r.sandbox.CreateSandbox(ctx, test.request)), test.want)
	}
	for name, err := range map[string]error{
		"start":  second(r.sandbox.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: "s"})),
		"stop":   second(r.sandbox.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxID: "s"})),
		"wait":   second(r.sandbox.WaitSandbox(ctx, &sandboxv1.WaitSandboxRequest{SandboxID: "s"})),
		"status": second(r.sandbox.SandboxStatus(ctx, &sandboxv1.SandboxStatusRequest{SandboxID: "s"})),
		"stats":  second(r.sandbox.SandboxMetrics(ctx, &sandboxv1.SandboxMetricsRequest{SandboxID: "s"})),
	} {
		wantCode(t, name+" of no sandbox", err, codes.NotFound)
	}
	r.runPod(t, "s")
	again := &sandboxv1.CreateSandboxRequest{SandboxID: "t", BundlePath: dir}
	wantCode(t, "a second pod", second(r.sandbox.CreateSandbox(ctx, again)), codes.AlreadyExists)
	_, err := r.sandbox.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: "s"})
	wantCode(t, "a second start", err, codes.FailedPrecondition)
}

// TestPodFails: a pod that cannot be created leaves nothing, and the front ends with it. So does one that hangs.
func TestPodFails(t *testing.T) {
	r, ctx, dir := start(t), within(t), podBundle(t)
	request := &sandboxv1.CreateSandboxRequest{SandboxID: "s", BundlePath: dir}
	r.set("create s", errFake)
	wantCode(t, "a failure", second(r.sandbox.CreateSandbox(ctx, request)), codes.Unknown)
	if left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir)); err != nil || len(left) > 0 {
		t.Errorf("%d mounts are left, %v", len(left), err)
	}
	r.set("create s", nil)
	defer r.hang("create s")()
	created := make(chan error, 1)
	go func() { created <- second(r.sandbox.CreateSandbox(ctx, request)) }()
	for r.called("create s") < 2 {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
	wantCode(t, "ShutdownSandbox", second(r.sandbox.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: "s"})), codes.OK)
	wantCode(t, "the creation", <-created, codes.Canceled)
	if r.shutdowns.Load() != 1 {
		t.Errorf("%d ends, want 1", r.shutdowns.Load())
	}
}
