package cri

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// fakePodOf starts a pod in a fake world that has the test image.
func fakePodOf(t *testing.T) (*enginetest.World, *service, string, engine.Options) {
	t.Helper()
	w := enginetest.New()
	o := testOptions(t, enginetest.Roots(t))
	enginetest.LoadImage(t, o.Images)
	s := fakeService(t, w, o)
	config := podConfig("p")
	config.LogDirectory = filepath.Join(t.TempDir(), "logs")
	id, err := s.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	return w, s, id, o
}

// TestContainerLife: a container is created, runs and exits. Its log file, bundle and record have the right places, and
// only the bundle has the environment.
func TestContainerLife(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	ctx := t.Context()
	config := containerConfig("main", "true")
	config.Envs = []*runtimeapi.KeyValue{{Key: "TOKEN", Value: []byte("s3cr3t=a=b")}}
	host := filepath.Join(t.TempDir(), "termination")
	if err := os.WriteFile(host, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: host}}
	id, err := s.CreateContainer(ctx, pod, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.CreateContainer(ctx, pod, config, nil); err != nil || again != id {
		t.Errorf("the same request again: %s %v, want %s", again, err, id)
	}
	bundle, err := os.ReadFile(filepath.Join(s.store.StateDir(pod), id, "config.json"))
	if err != nil || !strings.Contains(string(bundle), `"TOKEN=s3cr3t=a=b"`) {
		t.Errorf("the bundle lacks the environment: %v", err)
	}
	err = filepath.Walk(s.store.Dir(pod), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() || info.Size() > 1<<20 {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "s3cr3t") {
			t.Errorf("%s contains the environment", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.StartContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := s.StartContainer(ctx, id); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("start twice: %v", err)
	}
	events := subscribe(t, s)
	s.shim(w, pod).Exit(id, 3, "Error")
	if e := <-events; e.ContainerId != id || e.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
		t.Errorf("event: %v", e)
	}
	st, err := s.ContainerStatus(ctx, id, false)
	if err != nil || st.Status.ExitCode != 3 || st.Status.Reason != "Error" || st.Status.FinishedAt == 0 {
		t.Errorf("status: %v %v", st, err)
	}
	if words, _ := os.ReadFile(host); string(words) != "last words of /dev/termination-log" {
		t.Errorf("termination message: %q", words)
	}
	if !slices.ContainsFunc(st.Status.Mounts, func(m *runtimeapi.Mount) bool { return m.HostPath == host }) {
		t.Errorf("the status lacks the mount: %v", st.Status.Mounts)
	}
	if err := s.RemoveContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	if list, _ := s.ListContainers(ctx, nil); len(list) > 0 {
		t.Errorf("listed after removal: %v", list)
	}
}

// TestContainerFails: a failed creation leaves no trace, and the name is free again.
func TestContainerFails(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	w.Fail("Create", enginetest.ErrInjected)
	if _, err := s.CreateContainer(t.Context(), pod, containerConfig("main"), nil); !errors.Is(err, enginetest.ErrInjected) {
		t.Errorf("create: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(s.store.Dir(pod), "containers")); len(entries) > 0 {
		t.Errorf("records left: %v", entries)
	}
	if bundles, _ := filepath.Glob(filepath.Join(s.store.StateDir(pod), "*", "config.json")); len(bundles) > 0 {
		t.Errorf("bundles left: %v", bundles)
	}
	w.Fail("Create", nil)
	id, err := s.CreateContainer(t.Context(), pod, containerConfig("main"), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Fail("StartTask", enginetest.ErrInjected)
	if err := s.StartContainer(t.Context(), id); err == nil || !strings.Contains(err.Error(), "main") {
		t.Errorf("start: %v", err)
	}
	st, err := s.ContainerStatus(t.Context(), id, false)
	if err != nil || st.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.Status.ExitCode != 128 ||
		st.Status.Reason != "StartError" || !strings.HasSuffix(st.Status.Message, "(exit code 127)") {
		t.Errorf("a container that cannot run: %v %v", st, err)
	}
}

// TestRefusedContainers: an error names the fault of a container.
func TestRefusedContainers(t *testing.T) {
	_, s, pod, _ := fakePodOf(t)
	for _, test := range []struct {
		name   string
		change func(*runtimeapi.ContainerConfig)
		code   codes.Code
		says   string
	}{
		{"no name", func(c *runtimeapi.ContainerConfig) { c.Metadata = nil }, codes.InvalidArgument, "name"},
		{"no image", func(c *runtimeapi.ContainerConfig) { c.Image = nil }, codes.InvalidArgument, "image"},
		{"unknown image", func(c *runtimeapi.ContainerConfig) { c.Image.Image = "localhost/none:1" }, codes.NotFound, "none:1"},
		{"log path", func(c *runtimeapi.ContainerConfig) { c.LogPath = "../../etc/x" }, codes.InvalidArgument, "log"},
		{"host path", func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/host", HostPath: "/proc/sys"}}
		}, codes.Unimplemented, "/host"},
		{"device", func(c *runtimeapi.ContainerConfig) {
			c.Devices = []*runtimeapi.Device{{HostPath: "/dev/sda"}}
		}, codes.Unimplemented, "/dev/sda"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := containerConfig("c")
			test.change(config)
			_, err := s.CreateContainer(t.Context(), pod, config, nil)
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v (%v), want %v and %q", err, status.Code(err), test.code, test.says)
			}
		})
	}
}

// TestStopGrace: TERM comes first, and KILL after the grace.
func TestStopGrace(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	for name, ignore := range map[string]error{"obeys": nil, "ignores": enginetest.ErrInjected} {
		t.Run(name, func(t *testing.T) {
			w.Fail("Kill", ignore)
			id := startContainer(t.Context(), t, s, pod, containerConfig(name), nil)
			if err := s.StopContainer(t.Context(), id, 1); err != nil {
				t.Fatal(err)
			}
			st, err := s.ContainerStatus(t.Context(), id, false)
			want := int32(143)
			if ignore != nil {
				want = 137
			}
			if err != nil || st.Status.ExitCode != want {
				t.Errorf("exit code %d, want %d (%v)", st.Status.ExitCode, want, err)
			}
		})
	}
}

func TestImageName(t *testing.T) {
	img := image.Image{ID: "id", Names: []string{"a:1", "b:1"}, Digests: []string{"a@sha256:0"}}
	for _, tt := range []struct {
		spec *runtimeapi.ImageSpec
		img  image.Image
		want string
	}{
		{&runtimeapi.ImageSpec{Image: "c"}, img, "c"},
		{&runtimeapi.ImageSpec{Image: "id"}, img, "a:1"},
		{&runtimeapi.ImageSpec{Image: "id", UserSpecifiedImage: "b:1"}, img, "b:1"},
		{&runtimeapi.ImageSpec{Image: "id", UserSpecifiedImage: "gone:1"}, img, "a:1"},
		{&runtimeapi.ImageSpec{Image: "id"}, image.Image{ID: "id", Digests: img.Digests}, "a@sha256:0"},
		{&runtimeapi.ImageSpec{Image: "id"}, image.Image{ID: "id"}, "id"},
	} {
		if got := imageName(tt.spec, tt.img); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.spec, got, tt.want)
		}
	}
}

// TestNoLog: a container without a log directory or a log path runs, and a message says that its output is discarded.
func TestNoLog(t *testing.T) {
	w := enginetest.New()
	o := testOptions(t, enginetest.Roots(t))
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	enginetest.LoadImage(t, o.Images)
	s := fakeService(t, w, o)
	id, err := s.RunPodSandbox(t.Context(), podConfig("silent"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateContainer(t.Context(), id, containerConfig("main", "true"), nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "output is discarded") {
		t.Errorf("the log: %s, %v", text, err)
	}
}
