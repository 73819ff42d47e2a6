// Package sched sets the scheduling attributes of OCI processes that the guest's crun does not know.
package sched

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Attributes are the attributes of an OCI process; nil means unset.
type Attributes struct {
	Scheduler  *Scheduler  `json:"scheduler"`
	IOPriority *IOPriority `json:"ioPriority"`
	// Affinity is for an exec'd process, once it is in the container's cgroup.
	Affinity *Affinity `json:"execCPUAffinity"`
}

// Scheduler is OCI's, with the arguments of sched_setattr(2).
type Scheduler struct {
	Policy   string   `json:"policy"`
	Nice     int32    `json:"nice"`
	Priority uint32   `json:"priority"`
	Flags    []string `json:"flags"`
	Runtime  uint64   `json:"runtime"`  // nanoseconds
	Deadline uint64   `json:"deadline"` // nanoseconds
	Period   uint64   `json:"period"`   // nanoseconds
}

// IOPriority is OCI's, with the arguments of ioprio_set(2).
type IOPriority struct {
	Class    string `json:"class"`
	Priority uint8  `json:"priority"`
}

// Affinity is OCI's. Its initial CPUs have no effect: they end with the entry into the cgroup.
type Affinity struct {
	Final string `json:"final"`
}

var policies = map[string]uint32{
	"SCHED_OTHER": unix.SCHED_NORMAL, "SCHED_FIFO": unix.SCHED_FIFO, "SCHED_RR": unix.SCHED_RR, "SCHED_BATCH": unix.SCHED_BATCH,
	"SCHED_IDLE": unix.SCHED_IDLE, "SCHED_DEADLINE": unix.SCHED_DEADLINE,
}

var flags = map[string]uint64{
	"SCHED_FLAG_RESET_ON_FORK": unix.SCHED_FLAG_RESET_ON_FORK, "SCHED_FLAG_RECLAIM": unix.SCHED_FLAG_RECLAIM,
	"SCHED_FLAG_DL_OVERRUN": unix.SCHED_FLAG_DL_OVERRUN, "SCHED_FLAG_KEEP_POLICY": unix.SCHED_FLAG_KEEP_POLICY,
	"SCHED_FLAG_KEEP_PARAMS": unix.SCHED_FLAG_KEEP_PARAMS, "SCHED_FLAG_UTIL_CLAMP_MIN": unix.SCHED_FLAG_UTIL_CLAMP_MIN,
	"SCHED_FLAG_UTIL_CLAMP_MAX": unix.SCHED_FLAG_UTIL_CLAMP_MAX,
}

var classes = map[string]uintptr{"IOPRIO_CLASS_RT": 1, "IOPRIO_CLASS_BE": 2, "IOPRIO_CLASS_IDLE": 3}

// Of returns the attributes of an OCI process.
func Of(process json.RawMessage) (a Attributes, err error) {
	if err := json.Unmarshal(process, &a); err != nil {
		return a, fmt.Errorf("process: %w: %w", errdefs.ErrInvalidArgument, err)
	}
	return a, nil
}

// Or adds the attributes of the container's first process to an exec'd one that does not set them.
func (a Attributes) Or(first Attributes) Attributes {
	return Attributes{cmp.Or(a.Scheduler, first.Scheduler), cmp.Or(a.IOPriority, first.IOPriority), cmp.Or(a.Affinity, first.Affinity)}
}

// Apply sets the attributes of a process, which it inherits over execve(2). It succeeds if the process has ended.
func (a Attributes) Apply(pid int, exec bool) error {
	var err error
	if a.Scheduler != nil {
		err = wrap("scheduler", a.Scheduler.apply(pid))
	}
	if a.IOPriority != nil {
		err = errors.Join(err, wrap("ioPriority", a.IOPriority.apply(pid)))
	}
	if exec && a.Affinity != nil && a.Affinity.Final != "" {
		err = errors.Join(err, wrap("execCPUAffinity.final", a.Affinity.apply(pid)))
	}
	return err
}

func wrap(field string, err error) error {
	switch {
	case err == nil || errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EINVAL):
		err = fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	return fmt.Errorf("process.%s: %w", field, err)
}

func (s *Scheduler) apply(pid int) error {
	policy, ok := policies[s.Policy]
	if !ok {
		return fmt.Errorf("policy %.32q: %w", s.Policy, unix.EINVAL)
	}
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: policy, Nice: s.Nice, Priority: s.Priority,
		Runtime: s.Runtime, Deadline: s.Deadline, Period: s.Period,
	}
	for _, name := range s.Flags {
		flag, ok := flags[name]
		if !ok {
			return fmt.Errorf("flag %.64q: %w", name, unix.EINVAL)
		}
		attr.Flags |= flag
	}
	return unix.SchedSetAttr(pid, &attr, 0)
}

// The arguments of ioprio_set(2).
const (
	ofProcess  = 1  // IOPRIO_WHO_PROCESS
	classShift = 13 // of the class in a priority
)

func (p *IOPriority) apply(pid int) error {
	class, ok := classes[p.Class]
	if !ok || p.Priority > 7 {
		return fmt.Errorf("class %.32q, priority %d: %w", p.Class, p.Priority, unix.EINVAL)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, ofProcess, uintptr(pid), class<<classShift|uintptr(p.Priority)); errno != 0 {
		return errno
	}
	return nil
}

func (a *Affinity) apply(pid int) error {
	set, err := parse(a.Final)
	if err != nil {
		return err
	}
	return unix.SchedSetaffinity(pid, &set)
}

// parse parses a list of CPUs, such as "0-3,7".
func parse(list string) (set unix.CPUSet, err error) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err := errors.Join(err, err2); err != nil || from > to || to >= uint64(len(set)*64) {
			return set, fmt.Errorf("CPUs %.64q: %w", list, unix.EINVAL)
		}
		for cpu := from; cpu <= to; cpu++ {
			set.Set(int(cpu))
		}
	}
	return set, nil
}
