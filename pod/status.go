package pod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

const (
	// ReasonBackoffLimit is the Job controller's reason in the status of a pod with too many failures.
	ReasonBackoffLimit  = "BackoffLimitExceeded"
	messageBackoffLimit = "Job has reached the specified backoff limit"

	// ReasonDeadline is the kubelet's reason in the status of a pod that has been active for too long.
	ReasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
	// messageJobDeadline is for a pod that never began.
	messageJobDeadline = "Job was active longer than specified deadline"
)

// overdue returns the status message of a pod past its deadline.
func (r *view) overdue() string {
	if r.Turn.Awaited {
		return messageJobDeadline
	}
	return messageDeadline
}

// view is the state that the pod's status shows.
type view struct {
	plan.State
	o      *Options
	name   string            // the runtime's name
	words  map[string]string // last words of containers that have ended, by id
	last   corev1.PodStatus  // the status since the first observation
	looked bool              // the pod has been observed
}

// publish computes the status, and announces a change.
func (r *run) publish() {
	sandbox, ids, ending := "", make(map[string]string), make(map[string]bool)
	if r.Sandbox != nil {
		sandbox = r.Sandbox.GetId()
	}
	for _, c := range r.Containers {
		if c.Newest != nil {
			ids[c.Spec.Name] = c.Newest.ID()
		}
		if id := c.Newest.ID(); id != "" && (c.Failing == id || c.Replaced == id) {
			ending[id] = true
		}
	}
	r.p.publish(r.makeStatus(), r.asked, sandbox, ids, ending)
}

// makeStatus returns the pod's status as a kubelet would report it.
func (r *view) makeStatus() corev1.PodStatus {
	status := corev1.PodStatus{
		ObservedGeneration: r.Pod.Generation,
		HostIP:             r.o.HostIP,
		QOSClass:           podspec.QOS(r.Pod),
	}
	if !r.Turn.Awaited {
		began := metav1.NewTime(r.Began)
		status.StartTime = &began
	}
	if r.o.HostIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: r.o.HostIP}}
	}
	for _, ip := range r.ips() {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(status.PodIPs) == 0 && r.Sandbox != nil {
		status.PodIPs = r.last.PodIPs // a pod that has ended keeps its last addresses
	}
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
	for _, c := range r.Containers {
		if r.Turn.Awaited {
			break // like a pod that no kubelet has seen
		}
		of := &status.ContainerStatuses
		switch c.Kind {
		case podspec.Initial, podspec.Sidecar:
			of = &status.InitContainerStatuses
		case podspec.Ephemeral:
			of = &status.EphemeralContainerStatuses
		}
		*of = append(*of, r.containerStatus(c))
	}
	status.Phase = r.phase(&status)
	switch {
	case r.Fatal != nil:
		status.Reason, status.Message = "FailedStart", r.Fatal.Error()
	case r.Expired:
		status.Reason, status.Message = ReasonDeadline, r.overdue()
	case r.Turn.Never:
		status.Reason, status.Message = ReasonJobFailed, messageJobFailed
	case r.Ended && r.Turn.Awaited:
		status.Message = messageStopped
	case r.Exhausted():
		status.Reason, status.Message = ReasonBackoffLimit, messageBackoffLimit
	case r.SandboxErr != nil:
		status.Message = r.SandboxErr.Error()
	case r.Ended && status.Phase == corev1.PodFailed && r.Sandbox != nil && r.Dead == r.Sandbox.GetId() && r.Wanted == nil:
		status.Reason, status.Message = ReasonVMKilled, messageVMKilled
	}
	status.Conditions = r.conditions(&status)
	if r.Ended && r.Fatal == nil {
		podstatus.EndAll(&r.Pod.Spec, &status)
	}
	if r.looked {
		r.last = status
	}
	return status
}

// ips returns the sandbox's addresses, the primary one first. A pod on the host's network has the host's address, which
// the runtime does not report.
func (r *view) ips() []string {
	if r.Pod.Spec.HostNetwork && r.o.HostIP != "" && r.Ready() {
		return []string{r.o.HostIP}
	}
	network := r.Sandbox.GetNetwork()
	if network.GetIp() == "" {
		return nil
	}
	ips := []string{network.GetIp()}
	for _, more := range network.GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	return ips
}

// phase returns the pod's phase. The pod ends only when its VM is gone. A forced end is a failure, whatever the exit
// codes.
func (r *view) phase(status *corev1.PodStatus) corev1.PodPhase {
	phase := podstatus.Phase(r.Pod, status, r.Ended)
	switch {
	case r.Ended && (r.Fatal != nil || r.Expired || phase != corev1.PodSucceeded):
		return corev1.PodFailed
	case r.Ended || phase == corev1.PodPending || phase == corev1.PodRunning:
		return phase
	case podstatus.AnyStarted(status.ContainerStatuses):
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// conditions returns the pod's own conditions, with the times of their last change, and those that others set.
func (r *view) conditions(status *corev1.PodStatus) []corev1.PodCondition {
	var others []corev1.PodCondition
	if r.o.Conditions != nil {
		others = r.o.Conditions()
	}
	sandbox := podstatus.Condition{Status: corev1.ConditionFalse}
	if r.Ready() && !r.Ended {
		sandbox.Status = corev1.ConditionTrue
	}
	containers := podstatus.ContainersReady(&r.Pod.Spec, status)
	var out []corev1.PodCondition
	for _, entry := range []struct {
		kind corev1.PodConditionType
		podstatus.Condition
	}{
		{corev1.PodReadyToStartContainers, sandbox},
		{corev1.PodInitialized, podstatus.Initialized(&r.Pod.Spec, status)},
		{corev1.PodReady, podstatus.Ready(&r.Pod.Spec, containers, others)},
		{corev1.ContainersReady, containers},
		{corev1.PodScheduled, r.scheduled()},
	} {
		if r.Turn.Awaited && (entry.kind != corev1.PodScheduled || !r.Turn.Reported && !r.Ended) {
			continue // whoever follows the start must not hear of waiting before Turn was called
		}
		out = append(out, r.condition(entry.kind, entry.Condition))
	}
	if pending := r.Resize.Pending; pending != nil && !r.Ended {
		out = append(out, r.condition(corev1.PodResizePending, *pending))
	}
	if progress := r.Resize.Progress; progress != nil && !r.Ended {
		out = append(out, r.condition(corev1.PodResizeInProgress, *progress))
	}
	return append(out, others...)
}

func (r *view) condition(kind corev1.PodConditionType, c podstatus.Condition) corev1.PodCondition {
	return corev1.PodCondition{
		Type: kind, Status: c.Status, Reason: c.Reason, Message: c.Message,
		ObservedGeneration: r.Pod.Generation, LastTransitionTime: r.since(kind, c.Status),
	}
}

// since returns when a condition took its status.
func (r *view) since(kind corev1.PodConditionType, status corev1.ConditionStatus) metav1.Time {
	for _, before := range r.last.Conditions {
		if before.Type == kind && before.Status == status {
			return before.LastTransitionTime
		}
	}
	return metav1.NewTime(time.Now())
}

// turnMessage returns the reason for the wait.
func (r *view) turnMessage() string {
	n, limited := podspec.Parallelism(r.Pod)
	if !limited {
		return "the pod waits for its turn"
	}
	return fmt.Sprintf("the pod waits for its turn: the Job's parallelism is %d", n)
}

// scheduled returns the condition PodScheduled.
func (r *view) scheduled() podstatus.Condition {
	switch {
	case r.Turn.Awaited && r.Ended:
		return podstatus.Condition{Status: corev1.ConditionFalse, Reason: reasonNoTurn}
	case r.Turn.Awaited:
		return podstatus.Condition{Status: corev1.ConditionFalse, Reason: ReasonTurn, Message: r.turnMessage()}
	}
	return podstatus.Condition{Status: corev1.ConditionTrue}
}
