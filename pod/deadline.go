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
	if seconds == nil || r.expired || r.stopping != nil || r.over() {
		return
	}
	if due := r.began.Add(time.Duration(*seconds) * time.Second); time.Now().Before(due) {
		r.at(due)
		return
	}
	r.expired = true
	r.event(nil, false, ReasonDeadline, messageDeadline)
}
