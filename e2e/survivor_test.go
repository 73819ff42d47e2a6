package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// counting is the script of a pod. Its log shows gaps and repetitions.
const counting = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.2; done"

// survivor is a pod that was started before anything is killed. It must not notice the kills.
type survivor struct {
	w       *world
	name    string
	sandbox string
	lines   int // of its log, at the last check
}

func newSurvivor(t *testing.T, w *world) *survivor {
	t.Helper()
	s := &survivor{w: w, name: "survivor"}
	w.must(t, pod(s.name, "Always", counting), "run", "-d", "-q", "-")
	s.sandbox = w.sandbox(t, s.name)
	s.check(t)
	return s
}

// check fails the test if the pod has noticed a kill.
func (s *survivor) check(t *testing.T) {
	t.Helper()
	p := s.w.find(t, s.name)
	if p.Sandbox != s.sandbox || p.Restarts != 0 || p.Status != "Running" {
		t.Errorf("the survivor: %+v", p)
	}
	if out := s.w.run(t, "", "exec", s.name, "--", "echo", "alive"); out.out.String() != "alive\n" {
		t.Errorf("the survivor does not answer: %v", out)
	}
	n := checkCounting(t, s.w.log(t, s.name))
	for deadline := time.Now().Add(testdeadline.For(10 * time.Second)); n <= s.lines; n = checkCounting(t, s.w.log(t, s.name)) {
		if time.Now().After(deadline) {
			t.Errorf("the survivor's log stands still at %d", n)
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.lines = n
}

// checkCounting checks the log of counting for gaps and repetitions, and returns its last number.
func checkCounting(t *testing.T, log []string) int {
	t.Helper()
	for i, line := range log {
		if line != strconv.Itoa(i) {
			t.Errorf("line %d of the log is %q", i, line)
			break
		}
	}
	return len(log)
}

// log reads the output of the pod's container from the log file.
func (w *world) log(t *testing.T, name string) (lines []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.roots().Data, "pods", w.find(t, name).UID, "logs/c/0.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) != 4 {
			t.Errorf("not a line of the CRI's format: %q", line)
			continue
		}
		lines = append(lines, fields[3])
	}
	return lines
}

// find returns a pod from ps.
func (w *world) find(t *testing.T, name string) api.Pod {
	t.Helper()
	var pods []api.Pod
	if err := json.Unmarshal([]byte(w.must(t, "", "ps", "-o", "json")), &pods); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no pod %s among %+v", name, pods)
	return api.Pod{}
}

func (w *world) sandbox(t *testing.T, name string) string {
	t.Helper()
	return w.find(t, name).Sandbox
}
