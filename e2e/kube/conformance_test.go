package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// conformanceTogether is the number of concurrent specifications. Most of them wait most of the time.
const conformanceTogether = 5

// conformanceParts is the number of days until every specification was run once.
const conformanceParts = 12

// unconformed are the specifications that are not run, with the reasons.
var unconformed = []struct {
	*regexp.Regexp
	reason string
}{
	{regexp.MustCompile(`should be consumable via the environment`), "busybox's shell of Debian drops the names that have a hyphen"},
	{regexp.MustCompile(`node-pod communication: udp`), "Debian's busybox has no nc for UDP"},
	{regexp.MustCompile(`Probing |report node status infrequently`), "takes minutes"},
}

// specification is an entry of ginkgo's report.
type specification struct {
	ContainerHierarchyTexts    []string
	LeafNodeText, State        string
	RunTime                    time.Duration
	CapturedGinkgoWriterOutput string
	Failure                    struct{ Message string }
}

func (s *specification) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// conformance runs specifications of Kubernetes' conformance suite.
type conformance struct {
	*world
	program, repositories string
}

// testConformance runs the fast node specifications of Kubernetes' conformance suite.
func (w *world) testConformance(t *testing.T) {
	c := &conformance{world: w, program: testkube.Program(t, "conformance")}
	c.push(t)
	all := c.names(t)
	names, done := make(chan string, len(all)), make(chan *specification)
	for _, name := range all {
		names <- name
	}
	close(names)
	var together sync.WaitGroup
	for range conformanceTogether {
		together.Go(func() {
			for name := range names {
				done <- c.one(t, name)
			}
		})
	}
	go func() {
		together.Wait()
		close(done)
	}()
	for s := range done {
		t.Run(s.name(), func(t *testing.T) {
			t.Logf("%s after %v", s.State, s.RunTime.Round(10*time.Millisecond))
			if s.State != "passed" {
				t.Errorf("%s\n%s", s.Failure.Message, s.CapturedGinkgoWriterOutput)
			}
		})
	}
}

// names returns today's specifications.
func (c *conformance) names(t *testing.T) (names []string) {
	all, err := c.run(t.Context(), "--ginkgo.dry-run", "--ginkgo.label-filter=NodeConformance && !Slow && !Serial && !Flaky")
	if err != nil {
		t.Errorf("list the specifications: %v", err)
	}
	for _, s := range all {
		if s.State == "passed" && s.ContainerHierarchyTexts != nil {
			names = append(names, s.name())
		}
	}
	for _, u := range unconformed {
		there := len(names)
		names = slices.DeleteFunc(names, u.MatchString)
		if t.Logf("%d like %s are left out: %s", there-len(names), u, u.reason); len(names) == there {
			t.Errorf("no specification is like %s", u)
		}
	}
	slices.Sort(names)
	t.Logf("%d specifications", len(names))
	like := regexp.MustCompile(os.Getenv("BULKHEAD_TEST_SPECS"))
	part := 0
	return slices.DeleteFunc(names, func(name string) bool {
		part = (part + 1) % conformanceParts
		return !like.MatchString(name) ||
			like.String() == "" && !testturn.Long() && part != testturn.Day()%conformanceParts
	})
}

// one runs a specification.
func (c *conformance) one(t *testing.T, name string) *specification {
	all, err := c.run(testdeadline.Context(t, 5*time.Minute), "--ginkgo.focus=^Kubernetes "+regexp.QuoteMeta(name)+"$")
	for _, s := range all {
		if s.name() == name {
			return &s
		}
	}
	failed := &specification{LeafNodeText: name, State: "not run"}
	failed.Failure.Message = fmt.Sprint(err)
	return failed
}

// run runs the program and returns its report.
func (c *conformance) run(ctx context.Context, args ...string) ([]specification, error) {
	file, err := os.CreateTemp(c.Dir, "report")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, c.program, append(args, "--kubeconfig="+c.Kubeconfig(), "--provider=skeleton",
		"--num-nodes=1", "--dump-logs-on-failure=false", "--ginkgo.no-color", "--ginkgo.json-report="+file.Name())...)
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), "HOME="+c.Dir, "KUBE_TEST_REPO_LIST="+c.repositories)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it writes a partial report
	cmd.WaitDelay = 40 * time.Second
	out, err := cmd.CombinedOutput()
	var suites []struct{ SpecReports []specification }
	if failed := json.NewDecoder(file).Decode(&suites); failed != nil || len(suites) != 1 {
		return nil, fmt.Errorf("%d reports: %w: %s", len(suites), errors.Join(err, failed), out)
	}
	return suites[0].SpecReports, nil
}
