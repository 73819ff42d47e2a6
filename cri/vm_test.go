package cri

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestPod takes a pod through its whole life in a real VM.
func TestPod(t *testing.T) {
	s, _ := realService(t, enginetest.Clones)
	ctx := testdeadline.Context(t, 2*time.Minute)

	events := make(chan *runtimeapi.ContainerEventResponse, 64)
	subscribed := make(chan struct{})
	go s.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(subscribed) })
	<-subscribed

	config := podConfig("hello")
	config.LogDirectory = filepath.Join(t.TempDir(), "logs")
	id, err := s.RunPodSandbox(ctx, config, "")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	main, err := s.CreateContainer(ctx, id, containerConfig("main", "sh", "-c", `echo out; echo err >&2; hostname; exec sleep 1000`), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("create %v", time.Since(began))
	if err := s.StartContainer(ctx, main); err != nil {
		t.Fatal(err)
	}
	t.Logf("create and start %v", time.Since(began))
	facts, err := s.PodFacts(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("facts: %+v", facts)

	t.Run("privilege", func(t *testing.T) {
		for name, pid := range map[string]int{"shim": facts.ShimPID, "VM": facts.VMPID} {
			unprivileged(t, name, pid, "hello")
		}
	})
	t.Run("exec", func(t *testing.T) {
		began := time.Now()
		words := []string{"sh", "-c", "echo one; echo two >&2; exit 3"}
		stdout, stderr, err := s.ExecSync(ctx, main[:10], words, testdeadline.For(20*time.Second))
		var exit *process.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 3 || string(stdout) != "one\n" || string(stderr) != "two\n" {
			t.Errorf("exec: %q, %q, %v", stdout, stderr, err)
		}
		t.Logf("exec %v", time.Since(began))
		_, _, err = s.ExecSync(ctx, main, []string{"/no/such/command"}, testdeadline.For(20*time.Second))
		if !errors.As(err, &exit) || exit.Code != 127 {
			t.Errorf("a missing command: %v, want exit code 127", err)
		}
		_, _, err = s.ExecSync(ctx, main, []string{"sleep", "100"}, time.Second)
		if grpccode.Of(err) != codes.DeadlineExceeded {
			t.Errorf("a command that takes too long: %v, want %v", err, codes.DeadlineExceeded)
		}
		stdout, _, err = s.ExecSync(ctx, main, []string{"sh", "-c", "ps -o args | grep -c '^sleep 100$'"}, testdeadline.For(20*time.Second))
		if strings.TrimSpace(string(stdout)) != "0" {
			t.Errorf("the command that took too long still runs: %q %v", stdout, err)
		}
	})

	if err := s.StopContainer(ctx, main, 0); err != nil {
		t.Fatal(err)
	}
	st, err := s.ContainerStatus(ctx, main, false)
	if err != nil {
		t.Fatal(err)
	}
	if st.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.Status.ExitCode != 137 {
		t.Errorf("a killed container: %v", st.Status)
	}
	log, err := os.ReadFile(filepath.Join(config.LogDirectory, "main.log"))
	if err != nil || !strings.Contains(string(log), " stdout F out\n") || !strings.Contains(string(log), " stderr F err\n") ||
		!strings.Contains(string(log), " stdout F hello\n") {
		t.Errorf("log: %s %v", log, err)
	}

	if err := s.StopPodSandbox(ctx, id); err != nil {
		t.Fatal(err)
	}
	pod, err := s.PodSandboxStatus(ctx, id, true)
	if err != nil || pod.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("a stopped pod: %v, %v", pod, err)
	}
	if err := s.RemovePodSandbox(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := s.RemovePodSandbox(ctx, id); err != nil {
		t.Errorf("remove twice: %v", err)
	}
	enginetest.NothingLeft(t, s.o)
	want := "pod STARTED, main CREATED, main STARTED, main STOPPED, pod STOPPED, main DELETED, pod DELETED"
	var kinds []string
	for len(kinds) < strings.Count(want, ",")+1 {
		var e *runtimeapi.ContainerEventResponse
		select {
		case e = <-events:
		case <-ctx.Done():
			t.Fatalf("events: %s\nwant:   %s", strings.Join(kinds, ", "), want)
		}
		who := "pod"
		if e.ContainerId == main {
			who = "main"
		}
		kinds = append(kinds, who+" "+strings.TrimSuffix(strings.TrimPrefix(e.ContainerEventType.String(), "CONTAINER_"), "_EVENT"))
	}
	if got := strings.Join(kinds, ", "); got != want {
		t.Errorf("events: %s\nwant:   %s", got, want)
	}
}

// unprivileged checks a process that reads a guest's data. It has only the rights that its pod needs, and its command
// line does not contain the pod's secret.
func unprivileged(t *testing.T, name string, pid int, secret string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"CapPrm:\t0000000000000000",
		"CapEff:\t0000000000000000",
		"CapAmb:\t0000000000000000",
		"NoNewPrivs:\t1",
		"Seccomp:\t2",
	} {
		if !strings.Contains(string(status), "\n"+line+"\n") {
			t.Errorf("%s: no %q in\n%s", name, line, status)
		}
	}
	if os.Getuid() == 0 && (strings.Contains(string(status), "\nUid:\t0\t") || strings.Contains(string(status), "\nGid:\t0\t")) {
		t.Errorf("%s runs as root", name)
	}
	limits, err := os.ReadFile(filepath.Join(dir, "limits"))
	size := regexp.MustCompile(`Max file size +68719476736 +68719476736 `)
	if err != nil || !size.Match(limits) {
		t.Errorf("%s: its files may become larger than a disk: %s, %v", name, limits, err)
	}
	cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || bytes.Contains(cmdline, []byte(secret)) {
		t.Errorf("%s: command line %q, %v", name, cmdline, err)
	}
}
