package plan

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newState returns the state of a pod for words like "i=end:0 s=run run,hook". i is an init container, s a sidecar and
// e an ephemeral container. Containers are named c0, c1 and so on. A state is
//
//   - without an instance
//     new        created in this VM, and never started
//     run        runs
//     end:CODE   has just ended in this VM; end:CODE@5 ended five seconds ago
//     lost       ran in an earlier VM, without a known end
//     old:CODE   ended in an earlier VM
//
// Flags follow: hook (a postStart hook runs), pull (the image is missing), pulling, kill (it is being stopped). The
// sandbox is up, dead, stopped (dead, and stopped), or none.
func newState(policy corev1.RestartPolicy, sandbox, words string) *State {
	s := &State{Pod: testpod.New(policy), Began: now.Add(-time.Minute), Images: map[string]*Image{}, Claims: Claims{Mounted: true}}
	s.Pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	if sandbox != "none" {
		s.Sandbox = &runtimeapi.PodSandboxStatus{Id: "vm2"}
	}
	if sandbox == "dead" || sandbox == "stopped" {
		s.Sandbox.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	if sandbox == "stopped" {
		s.Dead = "vm2"
	}
	for i, word := range strings.Fields(words) {
		c := &Container{Spec: &corev1.Container{Name: "c" + strconv.Itoa(i)}, Image: Image{Found: &images.Image{}}}
		if kind, rest, found := strings.Cut(word, "="); found {
			word, c.Kind = rest, map[string]podspec.Kind{"i": podspec.Initial, "s": podspec.Sidecar, "e": podspec.Ephemeral}[kind]
		}
		flags := strings.Split(word, ",")
		c.Newest = newInstance(c.Spec.Name, flags[0])
		c.Tried = c.Newest != nil
		c.Sight(now)
		for _, flag := range flags[1:] {
			switch flag {
			case "hook":
				c.Hooked = true
			case "pull":
				c.Image.Found = nil
			case "pulling":
				c.Image = Image{Pulling: true}
			case "kill":
				c.Killing = c.Newest.ID()
			}
		}
		s.Containers = append(s.Containers, c)
	}
	return s
}

func newInstance(id, word string) *instance.Instance {
	state, rest, _ := strings.Cut(word, ":")
	code, ago, _ := strings.Cut(rest, "@")
	number, _ := strconv.Atoi(code)
	seconds, _ := strconv.Atoi(ago)
	i := &instance.Instance{Sandbox: "vm2", Status: &runtimeapi.ContainerStatus{
		Id: id, ExitCode: int32(number), FinishedAt: now.Add(-time.Duration(seconds) * time.Second).UnixNano(),
	}}
	switch state {
	case "-":
		return nil
	case "run":
		i.Status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	case "end":
		i.Status.State = runtimeapi.ContainerState_CONTAINER_EXITED
	case "lost":
		i.Sandbox, i.Status.State = "vm1", runtimeapi.ContainerState_CONTAINER_RUNNING
	case "old":
		i.Sandbox, i.Status.State = "vm1", runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return i
}

// text returns actions like "pull c0, wake 10s, kill c1 30s".
func text(actions []Action) string {
	var out []string
	for _, a := range actions {
		line := string(a.Do)
		switch a.Do {
		case Wake:
			line += " " + a.At.Sub(now).String()
		case Stop:
			line += " " + a.Grace.String()
		case Pull, PullLate:
			line += " " + a.Image.Name
			if a.Image.Container != nil {
				line += a.Image.Container.Spec.Name
			}
		case Resizing:
			line += fmt.Sprintf(" %d, %d restarts", len(a.Resize.Changes), len(a.Resize.Restarts))
		}
		if a.Container != nil {
			line += " " + a.Container.Spec.Name
		}
		if a.Do == Kill {
			line += " " + a.Grace.String()
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

// row is one state and its plan.
type row struct {
	name    string
	policy  corev1.RestartPolicy // empty is Always
	sandbox string               // empty is up
	words   string
	change  func(*State)
	want    string
}

func check(t *testing.T, rows []row) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if row.policy == "" {
				row.policy = corev1.RestartPolicyAlways
			}
			if row.sandbox == "" {
				row.sandbox = "up"
			}
			s := newState(row.policy, row.sandbox, row.words)
			if row.change != nil {
				row.change(s)
			}
			for range 2 { // a plan changes nothing
				if got := text(Plan(s, now)); got != row.want {
					t.Errorf("got  %s\nwant %s", got, row.want)
				}
			}
		})
	}
}
