package pod

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// wants reports whether c is to be started, now or when its turn comes.
func (r *run) wants(c *container) bool {
	if r.running(c) {
		return false
	}
	if c.outgoing() {
		return true // it was stopped for a restart
	}
	code, ended := r.outcome(c)
	switch c.kind {
	case podspec.Sidecar:
		return true
	case podspec.Ephemeral:
		return !ended
	case podspec.Initial:
		if r.initialised() {
			return false
		}
		// Init containers run again in a new VM.
		if !ended || code == 0 && !r.hasInstance(c) {
			return true
		}
	case podspec.Regular:
		if !ended {
			return !r.spent()
		}
	}
	return podspec.Restarts(r.pod, c.kind, c.spec, code, r.restarts())
}

// finished reports whether containers after c, an init container or a sidecar, may start.
func (r *run) finished(c *container) bool {
	if c.kind == podspec.Sidecar {
		return r.started(c)
	}
	code, ended := r.outcome(c)
	return ended && code == 0 && r.hasInstance(c)
}

// initialised reports whether all init containers have succeeded and all sidecars have started in this sandbox. The
// sandbox then stays initialised.
func (r *run) initialised() bool {
	inits := r.of(podspec.Initial, podspec.Sidecar)
	if len(inits) == 0 || slices.ContainsFunc(r.of(podspec.Regular), r.hasInstance) {
		return true
	}
	return !slices.ContainsFunc(inits, func(c *container) bool { return !r.finished(c) })
}

// next returns the containers that must be started now, in order. A sidecar that ends during the initialisation is
// started again beside later init containers.
func (r *run) next() []*container {
	var out []*container
	if !r.initialised() {
		inits := r.of(podspec.Initial, podspec.Sidecar)
		for i, c := range inits {
			if r.finished(c) {
				continue
			}
			if r.wants(c) {
				out = append(out, c)
			}
			if !slices.ContainsFunc(inits[i+1:], r.hasInstance) {
				break
			}
		}
	} else {
		for _, c := range r.of(podspec.Sidecar, podspec.Regular) {
			if r.wants(c) {
				out = append(out, c)
			}
		}
	}
	for _, c := range r.of(podspec.Ephemeral) {
		if r.wants(c) {
			out = append(out, c)
		}
	}
	return out
}

// over reports whether the pod is done: an init container has failed for good, or no regular container runs or will.
func (r *run) over() bool {
	if r.exhausted() {
		return true
	}
	for _, c := range r.of(podspec.Initial) {
		if code, ended := r.outcome(c); ended && code != 0 && !podspec.Restarts(r.pod, c.kind, c.spec, code, r.restarts()) {
			return true
		}
	}
	for _, c := range r.of(podspec.Regular) {
		if r.running(c) || r.wants(c) {
			return false
		}
	}
	return true
}

// restarts returns how often the pod's initial and regular containers have been restarted.
func (r *run) restarts() (n int32) {
	for _, c := range r.of(podspec.Initial, podspec.Regular) {
		if c.newest != nil {
			n += c.newest.Restarts
		}
	}
	return n
}

// The Job controller's texts for a Job with too many failed pods.
const (
	// ReasonBackoffLimit is the reason in the pod's status.
	ReasonBackoffLimit  = "BackoffLimitExceeded"
	messageBackoffLimit = "Job has reached the specified backoff limit"
)

// exhausted reports whether a container of a Job's pod has failed and may not be retried. The others end too.
func (r *run) exhausted() bool {
	if _, limited := podspec.BackoffLimit(r.pod); !limited {
		return false
	}
	return slices.ContainsFunc(r.of(podspec.Initial, podspec.Regular), func(c *container) bool {
		code, ended := r.outcome(c)
		return ended && code != 0 && !c.outgoing() && !podspec.Restarts(r.pod, c.kind, c.spec, code, r.restarts())
	})
}

// spent reports whether a pod that is never restarted has lost its VM. Containers that have not started never will.
func (r *run) spent() bool {
	if _, limited := podspec.BackoffLimit(r.pod); limited || r.pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return false
	}
	if r.sandbox == nil || r.ready() {
		return false
	}
	return slices.ContainsFunc(r.containers, func(c *container) bool { return c.newest != nil })
}

// The kubelet's texts for a pod that has been active for too long.
const (
	// ReasonDeadline is the reason in the pod's status.
	ReasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
	// messageJobDeadline is for a pod that never began.
	messageJobDeadline = "Job was active longer than specified deadline"
)

// overdue returns the status message of a pod past its deadline.
func (r *run) overdue() string {
	if r.turn.awaited {
		return messageJobDeadline
	}
	return messageDeadline
}

// checkDeadline marks the pod as expired when its active deadline has passed.
func (r *run) checkDeadline() {
	due := r.deadline()
	if due.IsZero() || r.expired || r.stopping != nil {
		return
	}
	switch over := r.over(); {
	case over && r.lastFinish().Before(due):
		return
	case !over && time.Now().Before(due):
		r.at(due)
		return
	}
	// This includes a pod that has ended after its deadline while no engine ran, or before the engine could report it.
	r.expired = true
	r.event(nil, false, ReasonDeadline, r.overdue())
}

// lastFinish returns when the last initial or regular container ended.
func (r *run) lastFinish() time.Time {
	var last time.Time
	now := time.Now()
	for _, c := range r.of(podspec.Initial, podspec.Regular) {
		if c.newest.Exited() {
			if at := c.endedAt(now); at.After(last) {
				last = at
			}
		}
	}
	return last
}
