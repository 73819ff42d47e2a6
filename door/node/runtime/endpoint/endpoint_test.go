package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/resources/admission"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/test/testcri"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// TestOpen checks that a missing runtime and a second process are errors that leave no lock behind.
func TestOpen(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, 10*time.Second)
	o := Options{
		Endpoint: "unix://" + filepath.Join(t.TempDir(), "no.sock"), Lock: filepath.Join(t.TempDir(), "l", "lock"), Volumes: t.TempDir(),
		Logger: slog.New(slog.DiscardHandler),
	}
	for range 2 { // the lock is free again
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		if _, err := Open(ctx, o); err == nil || errors.Is(err, flock.ErrLocked) {
			t.Errorf("missing runtime: %v", err)
		}
		cancel()
	}
	lock, err := flock.Try(o.Lock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, o); !errors.Is(err, flock.ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	for _, endpoint := range []string{"", "/run/x.sock", "tcp://127.0.0.1:1", "unix://x.sock", "unix://h/x", "unix:x", "unix:///x?y"} {
		if path, err := Path(endpoint); err == nil {
			t.Errorf("%q is %s", endpoint, path)
		}
	}
}

// TestAddress checks that only loopback addresses are accepted for streams.
func TestAddress(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"http://127.0.0.1:1/exec/x": true, "http://[::1]:1/exec/x": true,
		"https://127.0.0.1:1/": false, "http://10.0.0.1:1/": false, "http://localhost:1/": false, "http://127.0.0.1/": false,
		"http://u:p@127.0.0.1:1/": false, "ftp://127.0.0.1:1/": false, "": false, "http://%zz": false, "//[::]:1/x": false,
	} {
		if _, err := parseAddress(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestCarry checks that a client is connected with the runtime's server, which does not get its credentials.
func TestCarry(t *testing.T) {
	t.Parallel()
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/exec/token" || r.Header.Get("Authorization") != "" || r.Header.Get("Upgrade") != "words" {
			http.Error(w, fmt.Sprint(r.URL, r.Header), http.StatusTeapot)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: words\r\n\r\nfrom the runtime")
		_ = rw.Flush()
	}))
	defer runtime.Close()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := proxyStream(w, r, runtime.URL+"/exec/token", nil); err != nil {
			t.Error(err)
		}
	}))
	defer node.Close()
	ctx := testdeadline.Context(t, 10*time.Second)
	ask := func(headers string) string {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", node.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		deadline, _ := ctx.Deadline()
		_ = conn.SetDeadline(deadline)
		fmt.Fprintf(conn, "POST /exec/ns/p/c?command=x HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer secret\r\n%s\r\n", headers)
		text, err := io.ReadAll(conn)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	if got := ask("Connection: Upgrade\r\nUpgrade: words\r\n"); !strings.HasSuffix(got, "from the runtime") {
		t.Errorf("the client received %q", got)
	}
	if got := ask("Connection: close\r\n"); !strings.Contains(got, "400 Bad Request") {
		t.Errorf("without an upgrade: %q", got)
	}
}

// TestRefuse checks that fields that need the engine are refused by name.
func TestRefuse(t *testing.T) {
	t.Parallel()
	admits := admission.New(func() *corev1.Node { return nil }, (&Runtime{}).Backend().Refuse, nil)
	refuse := func(p *corev1.Pod) string {
		if no := admits.Admit(p); no != nil {
			return no.Message
		}
		return ""
	}
	one, zero := corev1.StorageMediumMemory, corev1.StorageMediumDefault
	volume := func(s corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: s}}}
	}
	container := func(c corev1.Container) corev1.PodSpec { return corev1.PodSpec{InitContainers: []corev1.Container{c}} }
	for field, spec := range map[string]corev1.PodSpec{
		"":                          volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: zero}}),
		"spec.volumes[0].hostPath":  volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}),
		"spec.volumes[0].csi":       volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}),
		"spec.volumes[0].ephemeral": volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
		"spec.volumes[0].persistentVolumeClaim": volume(corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
		}),
		"spec.volumes[0].image":               volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}),
		"spec.volumes[0].emptyDir.medium":     volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: one}}),
		"spec.initContainers[0].volumeMounts": container(corev1.Container{VolumeMounts: []corev1.VolumeMount{{SubPath: "a"}}}),
		"spec.initContainers[0].volumeDevice": container(corev1.Container{VolumeDevices: []corev1.VolumeDevice{{}}}),
	} {
		if got := refuse(&corev1.Pod{Spec: spec}); !strings.HasPrefix(got, field) || (field == "") != (got == "") {
			t.Errorf("%s: %q", field, got)
		}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"io.bulkhead.cache/v": "auto"}}}
	if got := refuse(p); !strings.Contains(got, "io.bulkhead.cache/v") {
		t.Errorf("annotation: %q", got)
	}
}

// TestEmptyDir checks that an emptyDir is created once, before its container, with access for all users of the pod.
func TestEmptyDir(t *testing.T) {
	t.Parallel()
	fake := testcri.New(0)
	s := &service{RuntimeService: fake, volumes: filepath.Join(t.TempDir(), "volumes")}
	sandbox, err := fake.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{Labels: map[string]string{uidLabel: "u"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.volumes, "u", layout.EmptyDir, "v")
	other := filepath.Join(t.TempDir(), layout.EmptyDir, "v")
	config := &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{HostPath: path}, {HostPath: other}}}
	for i := range 2 {
		if _, err := s.CreateContainer(t.Context(), sandbox, config, nil); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if want := []os.FileMode{0o777, 0o700}[i]; err != nil || info.Mode().Perm() != want {
			t.Errorf("%v, %v", info, err)
		}
		if err := os.Chmod(path, 0o700); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory elsewhere: %v", err)
	}
	link := filepath.Join(s.volumes, "u", layout.EmptyDir, "link")
	for _, at := range []string{link, filepath.Join(path, "host")} { // as a container could create them
		if err := os.Symlink("/", at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(s.volumes, "u"), filepath.Join(s.volumes, "other")); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		link, path + "/host", path + "/part", path + "/", filepath.Join(s.volumes, "u") + "/../u/" + layout.EmptyDir + "/v",
		filepath.Join(s.volumes, "other", layout.EmptyDir, "v"), filepath.Join(s.volumes, "u", "x", layout.EmptyDir, "v"),
	} {
		config := &runtimeapi.ContainerConfig{Mounts: []*runtimeapi.Mount{{HostPath: bad}}}
		if id, err := s.CreateContainer(t.Context(), sandbox, config, nil); err == nil {
			t.Errorf("%s is mounted into %s", bad, id)
		}
	}
}

// silent is a runtime without events.
type silent struct {
	*testcri.Runtime
	mu    sync.Mutex
	lists int
	fails error
}

func (s *silent) ListContainers(ctx context.Context, _ *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	s.mu.Lock()
	s.lists++
	err := s.fails
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: map[string]string{uidLabel: "u"}})
}

// TestRelist checks that changes of a runtime without events are reported, also after failed lists, and that lists stop
// without a subscriber.
func TestRelist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &silent{Runtime: testcri.New(0)}
		r := relist{fake, slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan *runtimeapi.ContainerEventResponse, 16)
		done := make(chan error, 1)
		go func() { done <- r.run(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {}) }()
		synctest.Wait()
		received := func() (n int) {
			time.Sleep(2 * relistEvery)
			synctest.Wait()
			for len(events) > 0 {
				if e := <-events; e.PodSandboxStatus.Metadata.Uid != "u" {
					t.Errorf("unexpected event of %v", e)
				}
				n++
			}
			return n
		}
		config := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}, Labels: map[string]string{uidLabel: "u"},
		}
		id, err := fake.RunPodSandbox(t.Context(), config, "")
		if err != nil || received() != 1 || received() != 0 {
			t.Errorf("after a new pod: %v", err)
		}
		c, err := fake.CreateContainer(t.Context(), id, &runtimeapi.ContainerConfig{Labels: map[string]string{uidLabel: "u"}}, nil)
		if err != nil || received() != 1 {
			t.Errorf("after a new container: %v", err)
		}
		fake.mu.Lock()
		fake.fails = errors.New("busy")
		fake.mu.Unlock()
		if err := fake.StartContainer(t.Context(), c); err != nil || received() != 0 {
			t.Errorf("after failed lists: %v", err)
		}
		fake.mu.Lock()
		fake.fails = nil
		fake.mu.Unlock()
		if received() != 1 {
			t.Error("no event for the container's start")
		}
		cancel()
		<-done
		time.Sleep(2 * relistEvery)
		synctest.Wait()
		fake.mu.Lock()
		before := fake.lists
		fake.mu.Unlock()
		time.Sleep(time.Minute)
		fake.mu.Lock()
		if fake.lists != before {
			t.Errorf("%d lists without a subscriber", fake.lists-before)
		}
		fake.mu.Unlock()
	})
}

// TestRelistAll checks that many simultaneous changes all reach a slow subscriber.
func TestRelistAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		fake := testcri.New(0)
		for i := range n {
			uid := fmt.Sprint(i)
			config := &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}, Labels: map[string]string{uidLabel: uid},
			}
			if _, err := fake.RunPodSandbox(t.Context(), config, ""); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		events, done := make(chan *runtimeapi.ContainerEventResponse), make(chan error, 1)
		r := relist{fake, slog.New(slog.DiscardHandler)}
		go func() { done <- r.run(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {}) }()
		received := map[string]bool{}
		for range n {
			time.Sleep(relistEvery / 10)
			synctest.Wait()
			select {
			case e := <-events:
				received[e.PodSandboxStatus.Metadata.Uid] = true
			default:
			}
		}
		cancel()
		if <-done; len(received) != n {
			t.Errorf("events for %d of %d pods", len(received), n)
		}
	})
}

// TestSum checks that the usage of containers is added up by pod, and that containers without a pod are ignored.
func TestSum(t *testing.T) {
	t.Parallel()
	one := func(uid string, cpu, memory uint64) *runtimeapi.ContainerStats {
		return &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{Labels: map[string]string{uidLabel: uid, "io.kubernetes.pod.name": "p"}},
			Cpu:        &runtimeapi.CpuUsage{Timestamp: int64(cpu), UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: cpu}},
			Memory:     &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: memory}},
		}
	}
	list := sum([]*runtimeapi.ContainerStats{one("u", 1, 10), one("", 7, 7), one("u", 2, 20), one("v", 3, 30), {}})
	if len(list) != 2 || list[0].Attributes.Metadata.Uid != "u" || list[0].Attributes.Metadata.Name != "p" {
		t.Fatalf("%v", list)
	}
	u := list[0].Linux
	if u.Cpu.UsageCoreNanoSeconds.Value != 3 || u.Memory.WorkingSetBytes.Value != 30 || u.Cpu.Timestamp != 2 || len(u.Containers) != 2 {
		t.Errorf("%v", u)
	}
}

// mute is a runtime that fails subscriptions to events.
type mute struct {
	*silent
	err   error
	begin bool // before it fails
}

func (m *mute) GetContainerEvents(
	_ context.Context, _ chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	if m.begin {
		established(nil)
	}
	return m.err
}

// TestEventsFail checks that a failed subscription to events is replaced by lists and retried, and that a runtime
// without events is not retried.
func TestEventsFail(t *testing.T) {
	t.Parallel()
	down := status.Error(codes.Unavailable, "down")
	for name, tc := range map[string]struct {
		err   error
		begin bool
		ends  time.Duration // 0 means never
	}{
		"none":      {err: status.Error(codes.Unimplemented, "no such method")},
		"away":      {err: down, ends: withoutEvents},
		"goes away": {err: down, begin: true, ends: time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := &mute{silent: &silent{Runtime: testcri.New(0)}, err: tc.err, begin: tc.begin}
				s := &service{RuntimeService: fake, relist: relist{fake, slog.New(slog.DiscardHandler)}}
				began, established := time.Now(), false
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				err := s.GetContainerEvents(ctx, make(chan *runtimeapi.ContainerEventResponse, 1),
					func(runtimeapi.RuntimeService_GetContainerEventsClient) { established = true })
				took := time.Since(began)
				if !established || err == nil || tc.ends == 0 && took < time.Hour || tc.ends > 0 && took > tc.ends {
					t.Errorf("established %v, after %v: %v", established, took, err)
				}
				cancel()
			})
		})
	}
}
