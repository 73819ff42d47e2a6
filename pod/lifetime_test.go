package pod

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

func TestActiveDeadline(t *testing.T) {
	deadline := int64(60)
	tests := []struct {
		name   string
		policy corev1.RestartPolicy
		lives  map[string][]life
		ends   time.Duration
		phase  corev1.PodPhase
		reason string
	}{
		{name: "runs into it", policy: "Always", lives: map[string][]life{"main": {{term: time.Second}}}, ends: 61 * time.Second,
			phase: "Failed", reason: "DeadlineExceeded"},
		{name: "gets its grace", policy: "Always", lives: map[string][]life{"main": {{deaf: true}}}, ends: 90 * time.Second, phase: "Failed",
			reason: "DeadlineExceeded"},
		{name: "obeys with success", policy: "Never", lives: map[string][]life{"main": {{lasts: 61 * time.Second, deaf: true}}},
			ends: 61 * time.Second, phase: "Failed", reason: "DeadlineExceeded"},
		{name: "ends before", policy: "Never", lives: map[string][]life{"main": {{lasts: 30 * time.Second}}}, ends: 30 * time.Second,
			phase: "Succeeded"},
		{name: "during the start", policy: "Always", lives: map[string][]life{"i": {{}}}, ends: 60 * time.Second, phase: "Failed",
			reason: "DeadlineExceeded"},
		{name: "during a back-off", policy: "Always", lives: map[string][]life{"main": {{lasts: time.Second, code: 1}}},
			ends: 60 * time.Second, phase: "Failed", reason: "DeadlineExceeded"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts["i"] = []life{{lasts: time.Nanosecond}}
				for name, lives := range test.lives {
					fake.scripts[name] = lives
				}
				pod := withInits(testpod.New(test.policy, "main"), "i")
				pod.Spec.ActiveDeadlineSeconds = &deadline
				begin := time.Now()
				s := supervise(t, fake, pod)
				if err := s.end(); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin).Round(time.Millisecond); took != test.ends {
					t.Errorf("took %v, want %v", took, test.ends)
				}
				status := s.Status()
				if status.Phase != test.phase || status.Reason != test.reason {
					t.Errorf("phase %s, reason %s", status.Phase, status.Reason)
				}
				if test.reason != "" && status.Message != "Pod was active on the node longer than the specified deadline" {
					t.Errorf("message %s", status.Message)
				}
			})
		})
	}
}

// TestActiveDeadlineSurvives: the deadline belongs to the pod, not to an engine or a VM.
func TestActiveDeadlineSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Always", "main")
		pod.Spec.ActiveDeadlineSeconds = new(int64(100))
		begin := time.Now()
		first := supervise(t, fake, pod)
		first.after(30 * time.Second)
		fake.die(first.Sandbox(), false)
		first.after(30 * time.Second)
		first.cancel()
		first.end()
		second := supervise(t, fake, pod)
		if err := second.end(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin).Round(time.Second); took != 100*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestActiveDeadlineOfAPodThatHasEnded: the next engine also reports that the deadline ended a pod, whatever its exit
// code. A pod that ended earlier is not affected.
func TestActiveDeadlineOfAPodThatHasEnded(t *testing.T) {
	for name, test := range map[string]struct {
		life   life
		away   time.Duration // when the first engine ends
		phase  corev1.PodPhase
		reason string
	}{
		"ended by it": {life: life{term: 5 * time.Second, termCode: -1}, away: 61 * time.Second, phase: "Failed",
			reason: "DeadlineExceeded"},
		"ended after it":   {life: life{lasts: 70 * time.Second}, away: 30 * time.Second, phase: "Failed", reason: "DeadlineExceeded"},
		"had ended":        {life: life{lasts: 50 * time.Second}, away: 30 * time.Second, phase: "Succeeded"},
		"failed before it": {life: life{lasts: 50 * time.Second, code: 1}, away: 30 * time.Second, phase: "Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts["main"] = []life{test.life}
				pod := testpod.New("Never", "main")
				pod.Spec.ActiveDeadlineSeconds = new(int64(60))
				first := supervise(t, fake, pod)
				first.after(test.away)
				first.cancel()
				first.end()
				time.Sleep(time.Hour)
				second := supervise(t, fake, pod)
				if err := second.end(); err != nil {
					t.Fatal(err)
				}
				if status := second.Status(); status.Phase != test.phase || status.Reason != test.reason {
					t.Errorf("phase %s, reason %s", status.Phase, status.Reason)
				}
			})
		})
	}
}

func TestTerminationMessages(t *testing.T) {
	long := strings.Repeat("x", 3000)
	line := func(tag, text string) string {
		return "2026-01-02T03:04:05.000000006Z stdout " + tag + " " + text + "\n"
	}
	many := ""
	for range 100 {
		many += line("F", "y")
	}
	tests := []struct {
		name   string
		policy corev1.TerminationMessagePolicy
		file   string
		log    string
		life   life
		want   string
	}{
		{name: "the file's", policy: "File", file: "last words", log: line("F", "log"), life: life{code: 1}, want: "last words"},
		{name: "of success too", policy: "File", file: "done\n", want: "done\n"},
		{name: "none", policy: "File", log: line("F", "log"), life: life{code: 1}},
		{name: "the log's", policy: "FallbackToLogsOnError", log: line("F", "one") + line("F", "two"), life: life{code: 1}, want: "one\ntwo\n"},
		{name: "not of success", policy: "FallbackToLogsOnError", log: line("F", "one")},
		{name: "the file overrides the log", policy: "FallbackToLogsOnError", file: "words", log: line("F", "one"), life: life{code: 1},
			want: "words"},
		{name: "parts of a line", policy: "FallbackToLogsOnError", log: line("P", "one ") + line("F", "two"), life: life{code: 1},
			want: "one two\n"},
		{name: "the end of a long line", policy: "FallbackToLogsOnError", log: line("F", "a"+long), life: life{code: 1},
			want: long[:2047] + "\n"},
		{name: "the last 80 lines", policy: "FallbackToLogsOnError", log: many, life: life{code: 1}, want: strings.Repeat("y\n", 80)},
		{name: "no such log", policy: "FallbackToLogsOnError", log: "rubbish\n\x00\n", life: life{code: 1}},
		{name: "no text", policy: "FallbackToLogsOnError", life: life{code: 1}},
		{name: "bytes that are not text", policy: "File", file: "a\xffb", life: life{code: 1}, want: "a?b"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				test.life.lasts = time.Second
				fake.scripts["main"] = []life{test.life}
				pod := testpod.New("Never", "main")
				pod.Spec.Containers[0].TerminationMessagePath, pod.Spec.Containers[0].TerminationMessagePolicy = "/tmp/words", test.policy
				var options Options
				dir := t.TempDir()
				s := supervise(t, fake, pod, func(o *Options) { o.MessageDir = dir; options = *o })
				for _, c := range fake.containers {
					mount := c.config.Mounts[0]
					if mount.ContainerPath != "/tmp/words" {
						t.Errorf("mount %v", mount)
					}
					info, err := os.Stat(mount.HostPath)
					if err != nil || info.Mode().Perm() != 0o666 {
						t.Errorf("%v, %v", info, err)
					}
					write(t, mount.HostPath, test.file)
				}
				write(t, filepath.Join(options.LogDir, "main", "0.log"), test.log)
				if err := s.end(); err != nil {
					t.Fatal(err)
				}
				if got := s.Status().ContainerStatuses[0].State.Terminated.Message; got != test.want {
					t.Errorf("message %q, want %q", got, test.want)
				}
				if err := s.Delete(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the messages remain: %v", err)
				}
			})
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func debugger(name, image, target string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{TargetContainerName: target, EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
	}}
}

func TestDebug(t *testing.T) {
	tests := []struct {
		name  string
		spec  corev1.EphemeralContainer
		life  life
		state string
		err   error
	}{
		{name: "runs", spec: debugger("d", "here:1", ""), state: "running"},
		{name: "has a target", spec: debugger("d", "here:1", "main"), state: "running"},
		{name: "ends", spec: debugger("d", "here:1", ""), life: life{lasts: time.Second, code: 3}, state: "terminated Error"},
		{name: "succeeds and is not restarted", spec: debugger("d", "here:1", ""), life: life{lasts: time.Second},
			state: "terminated Completed"},
		{name: "has the name of another container", spec: debugger("main", "here:1", ""), err: errdefs.ErrAlreadyExists},
		{name: "has no target", spec: debugger("d", "here:1", "other"), err: errTarget},
		{name: "has no image", spec: debugger("d", "bad:1", ""), state: "waiting ImagePullBackOff", err: errPull},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.scripts["d"] = []life{test.life}
				fake.pulls["bad:1"] = []error{errPull, errPull, errPull}
				s := supervise(t, fake, testpod.New("Always", "main"))
				err := s.Debug(t.Context(), test.spec, runtimev1.Size{})
				if !errors.Is(err, test.err) && (err == nil || test.err == nil || !strings.Contains(err.Error(), test.err.Error())) {
					t.Errorf("error %v, want %v", err, test.err)
				}
				status := s.after(15 * time.Second)
				if got := states(status)["d"]; got != test.state {
					t.Errorf("state %q, want %q", got, test.state)
				}
				if got := conditions(status)["Ready"]; got != "True" || status.Phase != corev1.PodRunning {
					t.Errorf("phase %s, ready %s", status.Phase, got)
				}
				if id, found := s.Container("d"); test.spec.TargetContainerName == "main" && found {
					options := fake.containers[id].config.Linux.SecurityContext.NamespaceOptions
					if main, _ := s.Container("main"); options.Pid != runtimeapi.NamespaceMode_TARGET || options.TargetId != main {
						t.Errorf("namespaces %v", options)
					}
				}
				if err := s.Stop(t.Context(), 0); err != nil {
					t.Error(err)
				}
				if err := s.Debug(t.Context(), debugger("late", "here:1", ""), runtimev1.Size{}); !errors.Is(err, errEnded) {
					t.Errorf("Debug of a pod that has ended: got %v, want %v", err, errEnded)
				}
			})
		})
	}
}

var errPull = errors.New("no such image")

// TestTakeOverAnEphemeralContainer: the next engine adopts a pod with its ephemeral containers.
func TestTakeOverAnEphemeralContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Always", "main")
		first := supervise(t, fake, pod)
		spec := debugger("d", "here:1", "")
		if err := first.Debug(t.Context(), spec, runtimev1.Size{}); err != nil {
			t.Fatal(err)
		}
		if err := first.Debug(t.Context(), spec, runtimev1.Size{}); !errors.Is(err, errdefs.ErrAlreadyExists) {
			t.Errorf("twice: %v", err)
		}
		first.cancel()
		first.end()
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, spec)
		second := supervise(t, fake, pod)
		if status := second.after(time.Minute); states(status)["d"] != "running" || starts(fake) != "main d" {
			t.Errorf("%v, started %s", states(status), starts(fake))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := second.Debug(ctx, debugger("e", "here:1", ""), runtimev1.Size{}); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

// TestKeepTrying: without a waiting client, the start is retried.
func TestKeepTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["i"] = []life{{lasts: time.Minute}}
		s := supervise(t, fake, withInits(testpod.New("Always", "main"), "i"), func(o *Options) { o.FailFast = true })
		select {
		case <-s.Observed():
		default:
			t.Error("the pod has not been observed")
		}
		s.KeepTrying()
		fake.mu.Lock()
		fake.errors["CreateContainer"] = []error{errPull}
		fake.mu.Unlock()
		if status := s.after(2 * time.Minute); status.Phase != corev1.PodRunning {
			t.Errorf("phase %s: %v", status.Phase, states(status))
		}
	})
}

// TestDeadSandboxesAreRemoved: a replaced VM is removed when the status contains none of its containers.
func TestDeadSandboxesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.scripts["done"] = []life{{lasts: time.Second}}
		s := supervise(t, fake, testpod.New("OnFailure", "main", "done"))
		s.after(2 * time.Second)
		for range 5 {
			fake.die(s.Sandbox(), false)
			s.after(20 * time.Minute)
		}
		fake.mu.Lock()
		defer fake.mu.Unlock()
		// The newest, the one of main's last run and the one where done has ended.
		if len(fake.sandboxes) != 3 || fake.sandboxes["s1"] == nil {
			t.Errorf("%d sandboxes are kept", len(fake.sandboxes))
		}
	})
}

func TestConditionsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := corev1.ConditionFalse
		pod := testpod.New("Always", "main")
		pod.Generation = 4
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/up"}}
		s := supervise(t, newFake(), pod, func(o *Options) {
			o.Conditions = func() []corev1.PodCondition {
				return []corev1.PodCondition{{Type: "example.com/up", Status: set}}
			}
		})
		if got := conditions(s.Status())["Ready"]; got != "False ReadinessGatesNotReady" {
			t.Errorf("ready: %s", got)
		}
		set = corev1.ConditionTrue
		s.Changed()
		status := s.after(0)
		if got := conditions(status); got["Ready"] != "True" || got["example.com/up"] != "True" {
			t.Errorf("conditions %v", got)
		}
		if status.ObservedGeneration != 4 || status.Conditions[0].ObservedGeneration != 4 {
			t.Errorf("generation %d", status.ObservedGeneration)
		}
	})
}
