package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakePodOf starts a pod in a fake world, with the test image at hand.
func fakePodOf(t *testing.T) (*world, *Service, string, Options) {
	t.Helper()
	w := newWorld()
	o := testOptions(t, testRoots(t))
	loadImage(t, o.Images)
	s := fakeEngine(t, w, o)
	config := podConfig("p")
	config.LogDirectory = filepath.Join(t.TempDir(), "logs")
	id, err := s.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	return w, s, id, o
}

func (w *world) shim(s *Service, pod string) *fakeShim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shims[s.store.StateDir(pod)]
}

// A container goes through created, running and exited; its log file, bundle
// and record are where they belong, and the environment only in the bundle.
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
			t.Errorf("%s holds the environment", path)
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
	fakeTask{fakeShim: w.shim(s, pod)}.exit(id, 3, "Error")
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

func subscribe(t *testing.T, s *Service) chan *runtimeapi.ContainerEventResponse {
	t.Helper()
	events, ready := make(chan *runtimeapi.ContainerEventResponse, 16), make(chan struct{})
	go s.GetContainerEvents(t.Context(), events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(ready) })
	<-ready
	return events
}

// A container whose creation fails leaves nothing, and its name is free.
func TestContainerFails(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	w.set("Create", errInjected)
	if _, err := s.CreateContainer(t.Context(), pod, containerConfig("main"), nil); !errors.Is(err, errInjected) {
		t.Errorf("create: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(s.store.Dir(pod), "containers")); len(entries) > 0 {
		t.Errorf("records left: %v", entries)
	}
	if bundles, _ := filepath.Glob(filepath.Join(s.store.StateDir(pod), "*", "config.json")); len(bundles) > 0 {
		t.Errorf("bundles left: %v", bundles)
	}
	w.set("Create", nil)
	id, err := s.CreateContainer(t.Context(), pod, containerConfig("main"), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.set("StartTask", errInjected)
	if err := s.StartContainer(t.Context(), id); err == nil || !strings.Contains(err.Error(), "main") {
		t.Errorf("start: %v", err)
	}
	st, err := s.ContainerStatus(t.Context(), id, false)
	if err != nil || st.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.Status.ExitCode != 127 {
		t.Errorf("a container that cannot run: %v %v", st, err)
	}
}

// What is wrong with a container is said by name.
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
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/host", HostPath: "/etc"}}
		}, codes.Unimplemented, "/host"},
		{"device", func(c *runtimeapi.ContainerConfig) {
			c.Devices = []*runtimeapi.Device{{HostPath: "/dev/sda"}}
		}, codes.Unimplemented, "devices"},
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

// "Grace period ignored on stop": TERM first, KILL when the time is over.
func TestStopGrace(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	for name, ignore := range map[string]error{"obeys": nil, "ignores": errInjected} {
		t.Run(name, func(t *testing.T) {
			w.set("Kill", ignore)
			id, err := s.CreateContainer(t.Context(), pod, containerConfig(name), nil)
			if err == nil {
				err = s.StartContainer(t.Context(), id)
			}
			if err == nil {
				err = s.StopContainer(t.Context(), id, 1)
			}
			if err != nil {
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

// "Ids are unique and can be named by any unambiguous prefix."
func TestPrefixes(t *testing.T) {
	s := fakeEngine(t, newWorld(), testOptions(t, testRoots(t)))
	for range 17 { // two of them begin alike
		config := podConfig("p")
		config.Metadata.Attempt = uint32(len(s.all()))
		if _, err := s.RunPodSandbox(t.Context(), config, ""); err != nil {
			t.Fatal(err)
		}
	}
	pods, err := s.ListPodSandbox(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ambiguous := 0
	for _, p := range pods {
		if _, err := s.PodSandboxStatus(t.Context(), p.Id[:1], false); status.Code(err) == codes.InvalidArgument {
			ambiguous++
		}
		if st, err := s.PodSandboxStatus(t.Context(), p.Id[:20], false); err != nil || st.Status.Id != p.Id {
			t.Errorf("by prefix: %v %v", st, err)
		}
	}
	if ambiguous < 2 {
		t.Errorf("%d ambiguous prefixes among 17 ids", ambiguous)
	}
}

// The machine's end is an event: containers end with 137 and VMKilled, never
// Completed, and the pod is cleared up.
func TestMachineDies(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	id, err := s.CreateContainer(t.Context(), pod, containerConfig("main"), nil)
	if err == nil {
		err = s.StartContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	events := subscribe(t, s)
	f := w.shim(s, pod)
	f.change(func() { f.state, f.reason = "stopped", "VMKilled: killed by signal 9" })
	wait(t, events, pod, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	st, err := s.ContainerStatus(t.Context(), id, false)
	if err != nil || st.Status.ExitCode != 137 || st.Status.Reason != "VMKilled" {
		t.Errorf("container: %v %v", st, err)
	}
	ps, err := s.PodSandboxStatus(t.Context(), pod, false)
	if err != nil || ps.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("pod: %v %v", ps, err)
	}
	w.clean(t)
	if _, err := s.CreateContainer(t.Context(), pod, containerConfig("late"), nil); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a container for a dead pod: %v", err)
	}
}

func wait(t *testing.T, events chan *runtimeapi.ContainerEventResponse, id string, kind runtimeapi.ContainerEventType) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case e := <-events:
			if e.ContainerId == id && e.ContainerEventType == kind {
				return
			}
		case <-timeout:
			t.Fatalf("no event %v of %s", kind, short(id))
		}
	}
}

// "An engine keeps nothing in memory that it cannot rebuild": the next engine
// sees what the last one saw, with and without living shims.
func TestNextEngine(t *testing.T) {
	w, s, pod, o := fakePodOf(t)
	ctx := t.Context()
	running, err := s.CreateContainer(ctx, pod, containerConfig("running"), nil)
	if err == nil {
		err = s.StartContainer(ctx, running)
	}
	ended, err2 := s.CreateContainer(ctx, pod, containerConfig("ended"), nil)
	if err2 == nil {
		err2 = s.StartContainer(ctx, ended)
	}
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	before, err := s.ContainerStatus(ctx, running, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newService(ctx, o, w, fakeMachines{w}); err == nil {
		t.Error("a second engine of the instance was started")
	}
	s.Close(context.Background())
	fakeTask{fakeShim: w.shim(s, pod)}.exit(ended, 7, "Error") // while nobody looked

	s = fakeEngine(t, w, o)
	after, err := s.ContainerStatus(ctx, running, false)
	if err != nil || after.Status.String() != before.Status.String() {
		t.Errorf("status after: %v %v\nbefore: %v", after, err, before)
	}
	st, err := s.ContainerStatus(ctx, ended, false)
	if err != nil || st.Status.ExitCode != 7 {
		t.Errorf("what ended meanwhile: %v %v", st, err)
	}
	s.Close(context.Background())

	// The shim was killed meanwhile.
	w.shim(s, pod).die()
	s = fakeEngine(t, w, o)
	if _, err := s.ContainerStatus(ctx, running, false); err != nil {
		t.Error(err)
	}
	if !slices.Contains(w.calls, "Adopt") {
		t.Error("no shim was adopted")
	}
	s.Close(context.Background())

	// The host was started again: no state, no process.
	w.shim(s, pod).die()
	w.mu.Lock()
	clear(w.shims)
	w.mu.Unlock()
	if err := os.RemoveAll(o.Roots.State); err != nil {
		t.Fatal(err)
	}
	s = fakeEngine(t, w, o)
	deadline, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for s.find1(t, pod).snapshot().Phase != "stopped" && deadline.Err() == nil {
		time.Sleep(5 * time.Millisecond) // no event can be waited for without a race
	}
	st, err = s.ContainerStatus(ctx, running, false)
	if err != nil || st.Status.ExitCode != 137 || st.Status.Reason != "VMKilled" {
		t.Errorf("after a reboot: %v %v", st, err)
	}
	if err := s.RemovePodSandbox(ctx, pod); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s)
}

func (s *Service) find1(t *testing.T, id string) *pod {
	p, err := s.find(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The shim is killed under a running engine: another takes over.
func TestShimDies(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	id, err := s.CreateContainer(t.Context(), pod, containerConfig("main"), nil)
	if err == nil {
		err = s.StartContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	events := subscribe(t, s)
	w.shim(s, pod).die()
	// A start that is told after the death proves that somebody listens.
	deadline := time.Now().Add(10 * time.Second)
	for {
		if c, err := s.find1(t, pod).shim(); err == nil && c.done == w.shim(s, pod).done {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no other shim took over")
		}
		time.Sleep(5 * time.Millisecond)
	}
	fakeTask{fakeShim: w.shim(s, pod)}.exit(id, 5, "Error")
	wait(t, events, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// A crash in the middle of a start leaves what Reap removes; another
// instance's pods are left alone.
func TestReapHalfMade(t *testing.T) {
	w := newWorld()
	roots := testRoots(t)
	o := testOptions(t, roots)
	w.block["StartSandbox"] = make(chan struct{})
	s := fakeEngine(t, w, o)
	go s.RunPodSandbox(t.Context(), podConfig("half"), "")
	deadline := time.Now().Add(10 * time.Second)
	for !slices.Contains(w.log(), "StartSandbox") && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	// What a killed engine leaves is a copy of the disk at that moment.
	crashed := testRoots(t)
	copySmall(t, crashed.Data, roots.Data)
	close(w.block["StartSandbox"])
	other := testOptions(t, crashed)
	other.Instance = "other"
	if s := fakeEngine(t, newWorld(), other); len(s.all()) > 0 {
		t.Error("another instance holds the pod")
	}
	if ids, err := os.ReadDir(crashed.Sandboxes()); err != nil || len(ids) != 1 {
		t.Errorf("another instance has touched the sandbox: %v %v", ids, err)
	}
	o.Roots = crashed
	next := fakeEngine(t, newWorld(), o)
	nothingLeft(t, next)
	if _, err := next.RunPodSandbox(t.Context(), podConfig("half"), ""); err != nil {
		t.Errorf("the name after the crash: %v", err)
	}
}

// copySmall copies a tree, without the disks in it.
func copySmall(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.Walk(from, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if info.IsDir() {
			return os.MkdirAll(target, info.Mode())
		}
		if info.Size() > 1<<20 {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, info.Mode())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) log() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// The pool: a ready clone becomes the pod, another is made after that, and
// none is left at the end.
func TestPool(t *testing.T) {
	w := newWorld()
	o := testOptions(t, testRoots(t))
	o.Pool = 1
	s := fakeEngine(t, w, o)
	ids := map[string]bool{}
	for i, name := range []string{"a", "b", "c"} {
		id, err := s.RunPodSandbox(t.Context(), podConfig(name), "")
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && !ids[id] {
			t.Errorf("pod %s is %s, not the pool's %v", name, id, ids)
		}
		facts, err := s.PodFacts(t.Context(), id)
		if err != nil || facts.Pooled != (i > 0) {
			t.Errorf("pod %s: %+v %v", name, facts, err)
		}
		if pods, _ := s.ListPodSandbox(t.Context(), nil); len(pods) != i+1 {
			t.Errorf("a member of the pool is seen: %v", pods)
		}
		ids = map[string]bool{s.member(t): true}
	}
	if r, err := s.Reap(t.Context()); err != nil || r.Removed > 0 || len(r.Failed) > 0 {
		t.Errorf("reap beside a pool: %+v %v", r, err)
	}
	cold := podConfig("cold")
	cold.Annotations = map[string]string{"io.bulkhead.internal/template": "off"}
	if id, err := s.RunPodSandbox(t.Context(), cold, ""); err != nil || ids[id] {
		t.Errorf("a cold pod took the pool's: %v", err)
	}
	for _, p := range s.all() {
		if err := s.RemovePodSandbox(t.Context(), p.id); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, s)
	w.clean(t)
}

// member waits for the pool to be full and returns its member's id.
func (s *Service) member(t *testing.T) string {
	t.Helper()
	s.pool.refill(0) // as a pod's end does
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		s.pool.mu.Lock()
		n := len(s.pool.members)
		id := ""
		if n > 0 {
			id = s.pool.members[0].record.ID
		}
		s.pool.mu.Unlock()
		if id != "" {
			return id
		}
	}
	t.Fatal("the pool stays empty")
	return ""
}

// A subscriber that does not read is cut off, and holds nobody up.
func TestSlowSubscriber(t *testing.T) {
	s := fakeEngine(t, newWorld(), testOptions(t, testRoots(t)))
	id, err := s.RunPodSandbox(t.Context(), podConfig("p"), "")
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan *runtimeapi.ContainerEventResponse)
	result, ready := make(chan error, 1), make(chan struct{})
	go func() {
		result <- s.GetContainerEvents(t.Context(), events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(ready) })
	}()
	<-ready
	for range backlog + 2 {
		s.events.emit(s.find1(t, id), id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	for {
		select {
		case <-events:
			continue
		case err := <-result:
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%v, want %v", err, codes.ResourceExhausted)
			}
			return
		}
	}
}
