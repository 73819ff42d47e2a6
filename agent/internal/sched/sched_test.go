package sched

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// child is a process that waits until the end of the test.
func child(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return cmd.Process.Pid
}

func TestApply(t *testing.T) {
	t.Parallel()
	pid := child(t)
	a, err := Of(json.RawMessage(`{"args":["a"],"scheduler":{"policy":"SCHED_BATCH","nice":5,"flags":["SCHED_FLAG_RESET_ON_FORK"]},
		"ioPriority":{"class":"IOPRIO_CLASS_IDLE","priority":3},"execCPUAffinity":{"initial":"9","final":"0"}}`))
	if err != nil {
		t.Fatal(err)
	}
	before := affinity(t, pid)
	if err := a.Apply(pid, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, affinity(t, pid)); diff != "" {
		t.Errorf("the affinity of an exec: %s", diff)
	}
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil || attr.Policy != unix.SCHED_BATCH || attr.Nice != 5 || attr.Flags != unix.SCHED_FLAG_RESET_ON_FORK {
		t.Errorf("scheduler %+v, %v", attr, err)
	}
	priority, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ofProcess, uintptr(pid), 0)
	if errno != 0 || priority != 3<<classShift|3 {
		t.Errorf("I/O priority %#x, %v", priority, errno)
	}
	if err := a.Apply(pid, true); err != nil {
		t.Fatal(err)
	}
	if set := affinity(t, pid); set.Count() != 1 || !set.IsSet(0) {
		t.Errorf("affinity %v", set)
	}
	if err := a.Apply(1<<30, true); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}

func affinity(t *testing.T, pid int) (set unix.CPUSet) {
	t.Helper()
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	pid := child(t)
	for process, says := range map[string]string{
		`{"scheduler":{"policy":"SCHED_ISO"}}`:                               `process.scheduler: invalid argument: policy "SCHED_ISO"`,
		`{"scheduler":{"policy":"SCHED_OTHER","flags":["F"]}}`:               `flag "F"`,
		`{"scheduler":{"policy":"SCHED_FIFO"}}`:                              "process.scheduler",
		`{"ioPriority":{"class":"IOPRIO_CLASS_BE","priority":8}}`:            "process.ioPriority",
		`{"ioPriority":{"class":"none"}}`:                                    `process.ioPriority: invalid argument: class "none"`,
		`{"execCPUAffinity":{"final":"1-0"}}`:                                `process.execCPUAffinity.final: invalid argument: CPUs "1-0"`,
		`{"execCPUAffinity":{"final":"x"}}`:                                  `CPUs "x"`,
		`{"execCPUAffinity":{"final":"0-99999"}}`:                            "CPUs",
		`{"execCPUAffinity":{"final":"1023"}}`:                               "process.execCPUAffinity.final",
		`{"scheduler":[]}`:                                                   "process",
		`{"scheduler":{"policy":"SCHED_DEADLINE","runtime":9,"deadline":1}}`: "process.scheduler",
	} {
		a, err := Of(json.RawMessage(process))
		if err == nil {
			err = a.Apply(pid, true)
		}
		if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", process, err, says)
		}
	}
}

func TestOr(t *testing.T) {
	t.Parallel()
	first := Attributes{Scheduler: &Scheduler{Nice: 1}, IOPriority: &IOPriority{Priority: 1}, Affinity: &Affinity{Final: "1"}}
	own := Attributes{Scheduler: &Scheduler{Nice: 2}}
	want := Attributes{own.Scheduler, first.IOPriority, first.Affinity}
	if diff := cmp.Diff(want, own.Or(first)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(first, Attributes{}.Or(first)); diff != "" {
		t.Error(diff)
	}
	if err := (Attributes{}).Apply(1, true); err != nil {
		t.Error(err)
	}
}
