package cri

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// apart are the specs of critest that are not run or skip themselves.
var apart = []struct{ specs, why string }{
	{"HostPID|HostIpc is true", "a VM has processes and shared memory of its own: such pods are refused"},
	{"HostNetwork is true", "the guest's kernel has no sockets of the host, which the spec lists in the container"},
	{"Mount Propagation|adding volume and device", "paths of the host other than volumes are refused"},
	{"should support (non-)?recursive readonly mounts", "likewise"},
	{"image with digest", "the one digest that the spec names is of an image that cannot be had"},
	{"MaskedPaths", "the shell of Debian's busybox runs its own ls, whatever /bin/ls is"},
	{"AppArmor", "the guest has none"},
	{"UserNamespaces", "no handler advertises them"},
	{"benchmark", "no test"},
}

// report is the part of ginkgo's JSON report that the test needs.
type report []struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeText, State     string
		RunTime                 time.Duration
		Failure                 struct{ Message string }
	}
}

// TestCritest runs the CRI's own test suite.
func TestCritest(t *testing.T) {
	testturn.SkipUnless(t, 0, 2)
	// before its images are made
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	critestImages(t)
	n := newNode(t, enginetest.Forks)
	tmp := filepath.Join(n.o.Roots.Data, "seccomp") // the directory of the kubelet's profiles
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	n.o.Logs = append(n.o.Logs, tmp)
	n.serve(t)
	var skip []string
	for _, a := range apart {
		skip = append(skip, a.specs)
	}
	file := filepath.Join(n.logs, "report.json")
	cmd := exec.CommandContext(testdeadline.Context(t, 5*time.Minute), testkube.Program(t, "critest"),
		"-runtime-endpoint", "unix://"+n.o.Socket, "-ginkgo.json-report", file, "-ginkgo.no-color", "-ginkgo.skip", strings.Join(skip, "|"))
	cmd.Dir, cmd.Env = tmp, append(os.Environ(), "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWIPC} // it leaves shared memory
	out, ended := cmd.CombinedOutput()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v, %v: %s", ended, err, out)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil || len(r) != 1 {
		t.Fatalf("the report: %v", err)
	}
	matched := map[string]bool{}
	for _, s := range r[0].SpecReports {
		name := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
		why := slices.IndexFunc(apart, func(a struct{ specs, why string }) bool { return regexp.MustCompile(a.specs).MatchString(name) })
		switch {
		case s.State == "passed":
			t.Logf("%.1f s: %s", s.RunTime.Seconds(), name)
		case s.State == "skipped" && why >= 0:
			matched[apart[why].specs] = true
		default:
			t.Errorf("%s: %s: %s", name, s.State, s.Failure.Message)
		}
	}
	for _, a := range apart {
		if !matched[a.specs] {
			t.Errorf("no spec was skipped as %s", a.specs)
		}
	}
	if t.Failed() {
		t.Logf("critest ended with %v: %s", ended, out)
	}
	n.nothingLeft(t)
}
