package pod

import "time"

// The kubelet's words for a pod that has been active for too long.
const (
	// ReasonDeadline is that of a pod's status.
	ReasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
)

// checkDeadline sees to it that a pod ends when its active deadline passes.
func (r *run) checkDeadline() {
	seconds := r.pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || r.expired || r.stopping != nil {
		return
	}
	due := r.began.Add(time.Duration(*seconds) * time.Second)
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
	r.event(nil, false, ReasonDeadline, messageDeadline)
}

// lastFinish is when the last of the containers that the pod is for has ended,
// and of those that initialise it.
func (r *run) lastFinish() time.Time {
	var last time.Time
	for _, c := range r.of(initial, regular) {
		if c.newest.exited() {
			if at := nano(c.newest.status.GetFinishedAt()); at.After(last) {
				last = at
			}
		}
	}
	return last
}
