package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"

	corev1 "k8s.io/api/core/v1"
)

// testResize changes the resources of a running pod: its containers see them, its VM grows and shrinks, and the
// host's limits follow.
func testResize(t *testing.T, w *world) {
	w.must(t, `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 1, containers: [
  {name: a, image: "`+image+`", command: [sh, -c, "while :; do sleep 1; done"], resources: {limits: {cpu: 500m, memory: 64Mi}}},
  {name: b, image: "`+image+`", command: [sh, -c, "while :; do sleep 1; done"], resources: {limits: {cpu: 250m, memory: 64Mi}},
   resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]}]}}`, "run", "-d", "-q", "-")
	inside := func(container, want string) {
		t.Helper()
		limits := w.must(t, "", "exec", "-c", container, "web", "--", "cat", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max")
		if got := strings.Join(strings.Fields(limits), " "); got != want {
			t.Errorf("container %s has %q, want %q", container, got, want)
		}
	}
	total := func() int {
		t.Helper()
		n, err := strconv.Atoi(strings.Fields(w.must(t, "", "exec", "-c", "a", "web", "--", "grep", "MemTotal", "/proc/meminfo"))[1])
		if err != nil {
			t.Fatal(err)
		}
		return n >> 10
	}
	inside("a", "67108864 50000 100000")
	before, small := w.facts(t, "web"), total()

	w.must(t, "", "update", "web", "--cpu", "600m", "--memory", "1Gi")
	inside("a", "1073741824 60000 100000")
	after := w.facts(t, "web")
	const more = 1280 - 384 // MiB, from the sums and a VM's overhead, rounded up
	if grown := total(); grown < small+800 || after.MemoryMiB != before.MemoryMiB+more {
		t.Errorf("the VM has %d MiB after %d, its guest %d after %d", after.MemoryMiB, before.MemoryMiB, grown, small)
	}
	if len(after.Cgroup.Dirs) > 0 &&
		(after.Cgroup.Memory != before.Cgroup.Memory+more<<20 || hostMemory(t, after.Cgroup.Dirs) != after.Cgroup.Memory) {
		t.Errorf("the host allows %d after %d, in its cgroup %d", after.Cgroup.Memory, before.Cgroup.Memory, hostMemory(t, after.Cgroup.Dirs))
	}
	pod := w.inspect(t, "web")
	if c := pod.Status.ContainerStatuses[0]; c.RestartCount != 0 ||
		c.Resources.Limits.Memory().String() != "1Gi" || pod.Spec.Containers[0].Resources.Limits.Cpu().String() != "600m" {
		t.Errorf("container a: %+v", c)
	}

	if y := w.must(t, "", "kube", "generate", "web"); !strings.Contains(y, "memory: 1Gi") || !strings.Contains(y, "cpu: 600m") {
		t.Errorf("the generated YAML:\n%s", y)
	}

	// A later engine knows the new resources.
	w.shutdown(t)
	w.must(t, "", "update", "web", "-c", "b", "--memory", "96Mi")
	inside("b", "100663296 25000 100000")
	pod = w.inspect(t, "web")
	a, b := pod.Status.ContainerStatuses[0], pod.Status.ContainerStatuses[1]
	if a.RestartCount != 0 || b.RestartCount != 1 || a.Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("after a resize of b: %+v, %+v", a, b)
	}

	// The VM was created with one CPU.
	if was := cpusOf(t, w); was != "1" {
		t.Fatalf("the pod has %s CPUs", was)
	}
	w.must(t, "", "update", "web", "-c", "a", "--cpu", "1500m")
	if now := cpusOf(t, w); now != "2" {
		t.Errorf("grown to 1.75 CPUs, the pod has %s", now)
	}
	w.must(t, "", "update", "web", "-c", "a", "--cpu", "600m")
	if now := cpusOf(t, w); now != "1" {
		t.Errorf("shrunk again, the pod has %s CPUs", now)
	}

	if c := w.run(t, "", "update", "web", "--cpu", "63"); c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), "Infeasible") {
		t.Errorf("63 CPUs: %v", c)
	}
	if got := resizePending(w.inspect(t, "web")); got != corev1.PodReasonInfeasible {
		t.Errorf("the pod's status says %q", got)
	}
	w.must(t, "", "update", "web", "--cpu", "500m", "--memory", "64Mi")
	inside("a", "67108864 50000 100000")
	for began := time.Now(); total() > small+64 && time.Since(began) < testdeadline.For(20*time.Second); {
		time.Sleep(100 * time.Millisecond) // the guest gives memory back slowly
	}
	if last := w.facts(t, "web"); total() > small+256 || last.MemoryMiB >= after.MemoryMiB {
		t.Errorf("after shrinking the VM has %d MiB, its guest %d", last.MemoryMiB, total())
	}
	if c := w.run(t, "", "update", "web", "--memory", "lots"); c.ProcessState.ExitCode() == 0 {
		t.Error("a memory of lots is accepted")
	}
	w.must(t, "", "rm", "-f", "web")
}

// cpusOf returns the number of CPUs that a process of the pod sees.
func cpusOf(t *testing.T, w *world) string {
	t.Helper()
	return strings.TrimSpace(w.must(t, "", "exec", "web", "-c", "b", "--", "nproc"))
}

func resizePending(pod corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending {
			return c.Reason
		}
	}
	return ""
}

// facts returns the facts of a pod's VM.
func (w *world) facts(t *testing.T, name string) engine.Facts {
	t.Helper()
	var f engine.Facts
	if err := json.Unmarshal([]byte(w.must(t, "", "inspect", "--sandbox", "-o", "json", name)), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// hostMemory returns the memory limit in a pod's cgroup on the host.
func hostMemory(t *testing.T, dirs []string) int64 {
	t.Helper()
	for _, dir := range dirs {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
				if err != nil {
					t.Fatal(fmt.Errorf("%s: %w", file, err))
				}
				return n
			}
		}
	}
	return 0
}
