package pod

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// wants tells whether c is to be started, if not now then when its turn comes.
func (r *run) wants(c *container) bool {
	if r.running(c) {
		return false
	}
	if c.outgoing() {
		return true // its end was not its own
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
		// A machine that is new is initialised anew.
		if !ended || code == 0 && !r.begun(c) {
			return true
		}
	case podspec.Regular:
		if !ended {
			return !r.spent()
		}
	}
	return podspec.Restarts(r.pod, c.kind, c.spec, code, r.restarts())
}

// finished tells whether the start may go on to what comes after c, which is
// an initial container or a sidecar.
func (r *run) finished(c *container) bool {
	if c.kind == podspec.Sidecar {
		return r.started(c)
	}
	code, ended := r.outcome(c)
	return ended && code == 0 && r.begun(c)
}

// initialised tells whether the sandbox has seen all initial containers end and
// all sidecars start: from then on it stays initialised.
func (r *run) initialised() bool {
	inits := r.of(podspec.Initial, podspec.Sidecar)
	if len(inits) == 0 || slices.ContainsFunc(r.of(podspec.Regular), r.begun) {
		return true
	}
	return !slices.ContainsFunc(inits, func(c *container) bool { return !r.finished(c) })
}

// next are the containers that are to run now and do not, in the order in which
// they are started. A sidecar that falls while later ones are being initialised
// is started again beside them.
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
			if !slices.ContainsFunc(inits[i+1:], r.begun) {
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

// over tells whether the pod has run to its end: an initial container has failed
// for good, or no regular one has anything left to do.
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

// restarts is how often the pod's initial and regular containers were started
// again.
func (r *run) restarts() (n int32) {
	for _, c := range r.of(podspec.Initial, podspec.Regular) {
		if c.newest != nil {
			n += c.newest.Restarts
		}
	}
	return n
}

// The Job controller's words for a Job whose pods have failed too often.
const (
	// ReasonBackoffLimit is that of a pod's status.
	ReasonBackoffLimit  = "BackoffLimitExceeded"
	messageBackoffLimit = "Job has reached the specified backoff limit"
)

// exhausted tells whether a container of a Job's pod has failed and may not be
// tried again: then the others end too.
func (r *run) exhausted() bool {
	if _, limited := podspec.BackoffLimit(r.pod); !limited {
		return false
	}
	return slices.ContainsFunc(r.of(podspec.Initial, podspec.Regular), func(c *container) bool {
		code, ended := r.outcome(c)
		return ended && code != 0 && !c.outgoing() && !podspec.Restarts(r.pod, c.kind, c.spec, code, r.restarts())
	})
}

// spent tells whether a pod that is never restarted has lost its machine: what
// has not been started by then is not started any more.
func (r *run) spent() bool {
	if _, limited := podspec.BackoffLimit(r.pod); limited || r.pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return false
	}
	if r.sandbox == nil || r.ready() {
		return false
	}
	return slices.ContainsFunc(r.containers, func(c *container) bool { return c.newest != nil })
}

// The kubelet's words for a pod that has been active for too long.
const (
	// ReasonDeadline is that of a pod's status.
	ReasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
	// messageJobDeadline is of a pod that never began.
	messageJobDeadline = "Job was active longer than specified deadline"
)

// overdue is what is said of a pod whose deadline has passed.
func (r *run) overdue() string {
	if r.turn.awaited {
		return messageJobDeadline
	}
	return messageDeadline
}

// checkDeadline sees to it that a pod ends when its active deadline passes.
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
	// Also of one that has ended after it, under no engine or one that did
	// not live to tell.
	r.expired = true
	r.event(nil, false, ReasonDeadline, r.overdue())
}

// lastFinish is when the last of the containers that the pod is for has ended,
// and of those that initialise it.
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
