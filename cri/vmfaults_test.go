package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestKills kills the shim, the engine and the VM of a real pod, in this order. Its container counts, and each line of
// its log must appear exactly once.
func TestKills(t *testing.T) {
	s, o := realService(t, enginetest.Clones)
	ctx := testdeadline.Context(t, 2*time.Minute)
	config := podConfig("victim")
	config.LogDirectory = filepath.Join(t.TempDir(), "logs")
	pod, err := s.RunPodSandbox(ctx, config, "")
	if err != nil {
		t.Fatal(err)
	}
	count := containerConfig("count", "sh", "-c", "i=0; while true; do echo $i; i=$((i+1)); usleep 20000; done")
	id := startContainer(ctx, t, s, pod, count, config)
	log := filepath.Join(config.LogDirectory, "count.log")

	facts, err := s.PodFacts(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	kill9(t, facts.ShimPID)
	for {
		now, err := s.PodFacts(ctx, pod)
		if err == nil && now.ShimPID != 0 && now.ShimPID != facts.ShimPID {
			if now.VMPID != facts.VMPID {
				t.Errorf("the VM was %d and is %d", facts.VMPID, now.VMPID)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatal("no other shim took over")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if out, _, err := s.ExecSync(ctx, id, []string{"hostname"}, testdeadline.For(30*time.Second)); err != nil || string(out) != "victim\n" {
		t.Errorf("exec after the shim's death: %q %v", out, err)
	}

	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	s = serve(t, o)
	events := subscribe(t, s)
	if out, _, err := s.ExecSync(ctx, id, []string{"hostname"}, testdeadline.For(30*time.Second)); err != nil || string(out) != "victim\n" {
		t.Errorf("exec by the next engine: %q %v", out, err)
	}
	seen := contiguous(t, log)
	for contiguous(t, log) <= seen && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond) // the test waits for the log itself
	}

	now, err := s.PodFacts(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	kill9(t, now.VMPID)
	wait(t, events, pod, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	st, err := s.ContainerStatus(ctx, id, false)
	if err != nil || st.Status.ExitCode != 137 || st.Status.Reason != "VMKilled" {
		t.Errorf("container: %v %v", st, err)
	}
	contiguous(t, log)
	if err := s.RemovePodSandbox(ctx, pod); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, s.o)
}

// contiguous returns the number of lines of the log, which must be consecutive numbers.
func contiguous(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, fmt.Sprintf(" stdout F %d\n", n)) {
			t.Fatalf("line %d of the log is %q", n, line)
		}
		n++
	}
	return n
}

func kill9(t *testing.T, pid int) {
	t.Helper()
	if pid < 2 {
		t.Fatalf("pid %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestAllKilled: shim and VM are killed while no engine runs. The next engine reports the container's end and removes
// the remains.
func TestAllKilled(t *testing.T) {
	s, o := realService(t, enginetest.Clones)
	ctx := testdeadline.Context(t, 2*time.Minute)
	pod, err := s.RunPodSandbox(ctx, podConfig("victim"), "")
	if err != nil {
		t.Fatal(err)
	}
	id := startContainer(ctx, t, s, pod, containerConfig("main", "sleep", "1000"), nil)
	facts, err := s.PodFacts(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	kill9(t, facts.ShimPID)
	kill9(t, facts.VMPID)
	s = serve(t, o)
	st, err := s.ContainerStatus(ctx, id, false)
	if err != nil || st.Status.ExitCode != 137 || st.Status.Reason != "VMKilled" {
		t.Errorf("container: %v %v", st, err)
	}
	if err := s.RemovePodSandbox(ctx, pod); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, s.o)
}
