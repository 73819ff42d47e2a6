package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/network"
)

// TestEachStepFails: each step of a start fails in turn, and no trace remains.
func TestEachStepFails(t *testing.T) {
	for _, step := range []string{"Accel", "Attach", "Template", "Start", "SendFile", "CreateSandbox", "StartSandbox", "Publish"} {
		t.Run(step, func(t *testing.T) {
			w := enginetest.New()
			s := fakeService(t, w, testOptions(t, enginetest.Roots(t)))
			w.Fail(step, enginetest.ErrInjected)
			config := podConfig("p")
			config.LogDirectory = filepath.Join(t.TempDir(), "logs")
			config.PortMappings = []*runtimeapi.PortMapping{{HostPort: freePort(t), ContainerPort: 80}}
			_, err := s.RunPodSandbox(t.Context(), config, "")
			if !errors.Is(err, enginetest.ErrInjected) {
				t.Errorf("error %v, want the injected one", err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
			enginetest.NothingLeft(t, s.o)
			w.Clean(t)
			if _, err := os.Stat(config.LogDirectory); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the log directory remains: %v", err)
			}
			if pods, err := s.ListPodSandbox(t.Context(), nil); len(pods) > 0 || err != nil {
				t.Errorf("a failed pod is visible: %v %v", pods, err)
			}
			// A later request must not fail because the name is still reserved.
			w.Fail(step, nil)
			id, err := s.RunPodSandbox(t.Context(), config, "")
			if err != nil {
				t.Fatalf("the name cannot be used again: %v", err)
			}
			if err := s.RemovePodSandbox(t.Context(), id); err != nil {
				t.Error(err)
			}
			enginetest.NothingLeft(t, s.o)
			w.Clean(t)
		})
	}
}

func freePort(t *testing.T) int32 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// TestRefusedPods: checkPod requires a name, and rejects the host's network, PIDs and IPC, unsafe sysctls and an empty
// namespace with a clear error.
func TestRefusedPods(t *testing.T) {
	w := enginetest.New()
	s := fakeService(t, w, testOptions(t, enginetest.Roots(t)))
	options := func(o *runtimeapi.NamespaceOption) func(*runtimeapi.PodSandboxConfig) {
		return func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: o}
		}
	}
	for _, test := range []struct {
		name   string
		change func(*runtimeapi.PodSandboxConfig)
		code   codes.Code
		says   string
	}{
		{"no name", func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Name = "" }, codes.InvalidArgument, "name"},
		{"no metadata", func(c *runtimeapi.PodSandboxConfig) { c.Metadata = nil }, codes.InvalidArgument, "name"},
		{"no namespace", func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Namespace = "" }, codes.InvalidArgument, "namespace"},
		{"host pid", options(&runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE}), codes.Unimplemented, "hostPID"},
		{"host ipc", options(&runtimeapi.NamespaceOption{Ipc: runtimeapi.NamespaceMode_NODE}), codes.Unimplemented, "hostIPC"},
		{"unsafe sysctl", func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.Sysctls = map[string]string{"kernel.panic": "1"}
		}, codes.Unimplemented, "kernel.panic"},
		{"sctp port", func(c *runtimeapi.PodSandboxConfig) {
			c.PortMappings = []*runtimeapi.PortMapping{{HostPort: 53, ContainerPort: 53, Protocol: runtimeapi.Protocol_SCTP}}
		}, codes.Unimplemented, "sctp"},
		{"user namespace", options(&runtimeapi.NamespaceOption{
			UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: []*runtimeapi.IDMapping{{Length: 1}}},
		}), codes.Unimplemented, "hostUsers"},
		{"SELinux", func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{SelinuxOptions: &runtimeapi.SELinuxOption{Type: "spc_t"}}
		}, codes.Unimplemented, "SELinux"},
		{"AppArmor", func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{Apparmor: &runtimeapi.SecurityProfile{}}
		}, codes.Unimplemented, "AppArmor"},
		{"too much memory", func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 60}
		}, codes.ResourceExhausted, "MiB"},
		{"too many CPUs", func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuQuota: 1e9, CpuPeriod: 100000}
		}, codes.ResourceExhausted, "CPUs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := podConfig("p")
			test.change(config)
			_, err := s.RunPodSandbox(t.Context(), config, "")
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v (%v), want %v and %q", err, status.Code(err), test.code, test.says)
			}
		})
	}
	for _, o := range []runtimev1.PodOptions{{Network: "wifi"}, {Accel: "abacus"}} {
		_, err := s.RunPodSandboxWith(t.Context(), podConfig("p"), "", o)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), o.Network+o.Accel) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := s.RunPodSandbox(t.Context(), podConfig("p"), "runc"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("another runtime handler: %v", err)
	}
	enginetest.NothingLeft(t, s.o)
	if w.Starts() > 0 {
		t.Errorf("%d VMs were started", w.Starts())
	}
}

// TestPortInUse: a used port is reported before the VM starts.
func TestPortInUse(t *testing.T) {
	w := enginetest.New()
	s := fakeService(t, w, testOptions(t, enginetest.Roots(t)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	config := podConfig("p")
	config.PortMappings = []*runtimeapi.PortMapping{{HostPort: int32(l.Addr().(*net.TCPAddr).Port), ContainerPort: 80}}
	if _, err := s.RunPodSandbox(t.Context(), config, ""); !errors.Is(err, network.ErrPortInUse) {
		t.Errorf("%v, want %v", err, network.ErrPortInUse)
	}
	if w.Starts() > 0 {
		t.Error("a VM was started")
	}
	enginetest.NothingLeft(t, s.o)
}

// TestRepeatedRequestJoins: a repeated request for the same name and attempt joins the running one and gets its result.
// A request's deadline ends only its wait. The pod is not visible before it is ready.
func TestRepeatedRequestJoins(t *testing.T) {
	w := enginetest.New()
	release := w.Block("StartSandbox")
	s := fakeService(t, w, testOptions(t, enginetest.Roots(t)))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.RunPodSandbox(short, podConfig("p"), ""); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("a request with a short deadline: %v", err)
	}
	if pods, _ := s.ListPodSandbox(t.Context(), nil); len(pods) > 0 {
		t.Errorf("visible before it is ready: %v", pods)
	}
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			var err error
			if ids[i], err = s.RunPodSandbox(t.Context(), podConfig("p"), ""); err != nil {
				t.Error(err)
			}
		})
	}
	release()
	wg.Wait()
	again, err := s.RunPodSandbox(t.Context(), podConfig("p"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id != again {
			t.Errorf("ids %s and %s for one pod", id, again)
		}
	}
	if w.Starts() != 1 {
		t.Errorf("%d VMs were started for one pod", w.Starts())
	}
	if err := s.StopPodSandbox(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RunPodSandbox(t.Context(), podConfig("p"), ""); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the attempt of a stopped pod: %v", err)
	}
	next := podConfig("p")
	next.Metadata.Attempt = 1
	if _, err := s.RunPodSandbox(t.Context(), next, ""); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
}

// TestIdempotent: stop, remove and delete succeed for objects that do not exist.
func TestIdempotent(t *testing.T) {
	s := fakeService(t, enginetest.New(), testOptions(t, enginetest.Roots(t)))
	ctx := t.Context()
	for name, err := range map[string]error{
		"stop pod":         s.StopPodSandbox(ctx, "beef"),
		"remove pod":       s.RemovePodSandbox(ctx, "beef"),
		"stop container":   s.StopContainer(ctx, "beef", 1),
		"remove container": s.RemoveContainer(ctx, "beef"),
		"remove image":     s.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: "localhost/none:1"}),
	} {
		if err != nil {
			t.Errorf("%s of a missing object: %v", name, err)
		}
	}
	if _, err := s.PodSandboxStatus(ctx, "beef", false); status.Code(err) != codes.NotFound {
		t.Errorf("status of a missing object: %v", err)
	}
	id, err := s.RunPodSandbox(ctx, podConfig("p"), "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.StopPodSandbox(ctx, id[:8]); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := s.RemovePodSandbox(ctx, id); err != nil {
			t.Error(err)
		}
	}
}

// TestFailedDetachIsTriedAgain: a failed CNI DEL is retried, so that the address is not leaked.
func TestFailedDetachIsTriedAgain(t *testing.T) {
	w := enginetest.New()
	roots := enginetest.Roots(t)
	s := fakeService(t, w, testOptions(t, roots))
	id, err := s.RunPodSandbox(t.Context(), podConfig("p"), "")
	if err != nil {
		t.Fatal(err)
	}
	w.Fail("Detach", enginetest.ErrInjected)
	if err := s.RemovePodSandbox(t.Context(), id); !errors.Is(err, enginetest.ErrInjected) {
		t.Errorf("remove: %v, want the injected error", err)
	}
	if n := w.Networks(); n != 1 {
		t.Fatalf("%d networks, want the one of the pod that was not removed", n)
	}
	w.Fail("Detach", nil)
	if err := s.RemovePodSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	enginetest.NothingLeft(t, s.o)
	w.Clean(t)

	// The same when the start fails: the undo waits on disk for Reap.
	w.Fail("Detach", enginetest.ErrInjected)
	w.Fail("StartSandbox", enginetest.ErrInjected)
	if _, err := s.RunPodSandbox(t.Context(), podConfig("q"), ""); err == nil {
		t.Fatal("no error")
	}
	if r, _ := s.e.Reap(t.Context()); len(r.Failed) != 1 {
		t.Errorf("reap while the network fails: %+v", r)
	}
	w.Fail("Detach", nil)
	if r, err := s.e.Reap(t.Context()); err != nil || r.Removed != 1 || len(r.Failed) > 0 {
		t.Errorf("reap: %+v %v", r, err)
	}
	enginetest.NothingLeft(t, s.o)
	w.Clean(t)
}

// TestSilentCloneIsReplaced: a clone that never answers is replaced once, and no part of the first one remains.
func TestSilentCloneIsReplaced(t *testing.T) {
	silent := status.Error(codes.DeadlineExceeded, "no VM within 30s")
	w := enginetest.New()
	w.Once("StartSandbox", silent)
	s := fakeService(t, w, testOptions(t, enginetest.Roots(t)))
	id, err := s.RunPodSandbox(t.Context(), podConfig("p"), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RemovePodSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.Fail("StartSandbox", silent) // for ever: the error is returned, without endless retries
	if _, err := s.RunPodSandbox(t.Context(), podConfig("q"), ""); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want the deadline", err)
	}
	enginetest.NothingLeft(t, s.o)
	w.Clean(t)
}
