package convert

import (
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// scheduling checks a process's scheduler, I/O priority and CPUs.
func (n *notes) scheduling(p *specs.Process, vcpus int) error {
	if p.Scheduler != nil {
		if err := checkScheduler(p.Scheduler); err != nil {
			return err
		}
	}
	if io := p.IOPriority; io != nil {
		classes := []specs.IOPriorityClass{specs.IOPRIO_CLASS_RT, specs.IOPRIO_CLASS_BE, specs.IOPRIO_CLASS_IDLE}
		if !slices.Contains(classes, io.Class) || io.Priority < 0 || io.Priority > 7 {
			return invalid("process.ioPriority", "class %.32q, priority %d", io.Class, io.Priority)
		}
	}
	if a := p.ExecCPUAffinity; a != nil {
		return checkCPUs("process.execCPUAffinity.final", a.Final, vcpus)
	}
	return nil
}

var schedulerFlags = []specs.LinuxSchedulerFlag{
	specs.SchedFlagResetOnFork, specs.SchedFlagReclaim, specs.SchedFlagDLOverrun, specs.SchedFlagKeepPolicy, specs.SchedFlagKeepParams,
	specs.SchedFlagUtilClampMin, specs.SchedFlagUtilClampMax,
}

// checkScheduler applies the rules of sched_setattr(2).
func checkScheduler(s *specs.Scheduler) error {
	const field = "process.scheduler"
	realtime := s.Policy == specs.SchedFIFO || s.Policy == specs.SchedRR
	deadline := s.Policy == specs.SchedDeadline
	switch s.Policy {
	case specs.SchedOther, specs.SchedFIFO, specs.SchedRR, specs.SchedBatch, specs.SchedIdle, specs.SchedDeadline:
	case specs.SchedISO:
		return unsupported(field+".policy", "%s: Linux does not implement it", s.Policy)
	default:
		return invalid(field+".policy", "%.32q", s.Policy)
	}
	switch {
	case s.Nice < -20 || s.Nice > 19:
		return invalid(field+".nice", "%d must be from -20 to 19", s.Nice)
	case realtime && (s.Priority < 1 || s.Priority > 99):
		return invalid(field+".priority", "%d must be from 1 to 99 with %s", s.Priority, s.Policy)
	case !realtime && s.Priority != 0:
		return invalid(field+".priority", "%d must be 0 with %s", s.Priority, s.Policy)
	case !deadline && (s.Runtime != 0 || s.Deadline != 0 || s.Period != 0):
		return invalid(field, "runtime, deadline and period are for %s only", specs.SchedDeadline)
	case deadline && (s.Runtime == 0 || s.Runtime > s.Deadline || s.Period != 0 && s.Deadline > s.Period):
		return invalid(field, "runtime %d ≤ deadline %d ≤ period %d does not hold", s.Runtime, s.Deadline, s.Period)
	}
	for _, flag := range s.Flags {
		if !slices.Contains(schedulerFlags, flag) {
			return invalid(field+".flags", "%.64q", flag)
		}
	}
	return nil
}

// checkCPUs checks a list such as "0-3,7". Numbers from vcpus on are refused, unless it is 0.
func checkCPUs(field, list string, vcpus int) error {
	if list == "" {
		return nil
	}
	if len(list) > 4096 {
		return invalid(field, "%.64q is too long", list)
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || from > to {
			return invalid(field, "%.64q must be a list such as 0-3,7", list)
		}
		if vcpus > 0 && to >= uint64(vcpus) {
			return unsupported(field, "CPU %d: the VM has %d CPUs", to, vcpus)
		}
	}
	return nil
}
