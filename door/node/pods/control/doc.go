// Package control runs the pods that a source lists: the pods that an API server has bound to the node, or the static pods
// of a directory. A controller compares each pod, by its UID, with the pod that the runner has. It then runs, updates
// or ends the pod, and deletes its object once the runner has removed everything.
//
// Failed steps are retried forever, with pauses that grow to a bound. A new pod is never delayed.
package control

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Runner runs the pods of this node, by their UIDs. It is safe for concurrent use, also for one UID.
type Runner interface {
	// Run adds a new pod and starts it. The error matches ErrWaits if the pod must not be retried before Wake names it
	// or some seconds have passed. It matches ErrRejected if the pod can never run.
	Run(ctx context.Context, pod *corev1.Pod) error
	// Update applies the changes of a pod that exists. The error matches ErrWaits if it must be retried after some
	// seconds.
	Update(ctx context.Context, pod *corev1.Pod) error
	// Stop ends a pod within grace, in seconds, and returns when the pod has ended. A later call can shorten the grace.
	Stop(ctx context.Context, uid types.UID, grace int64) error
	// Remove removes everything of a pod that has ended, its VM first.
	Remove(ctx context.Context, uid types.UID) error
	// Forget drops the notes about a pod that does not exist.
	Forget(uid types.UID)
	// Has reports whether anything of the pod exists.
	Has(uid types.UID) bool
	// HasEnded reports whether the pod exists and has ended.
	HasEnded(uid types.UID) bool
	// Revivable reports whether the pod exists and has ended for a temporary reason.
	Revivable(uid types.UID) bool
	// Revive runs a revivable pod again.
	Revive(ctx context.Context, uid types.UID) error
	// Spec returns the pod as the last Run or Update passed it, or nil.
	Spec(uid types.UID) *corev1.Pod
	// All returns the UIDs of the existing pods.
	All() []types.UID
}

// Source lists the pods that a node has to run. It is safe for concurrent use.
type Source interface {
	// Subscribe registers callbacks: changed for each new or changed pod, and gone for each removed pod. Neither may
	// block. It is called once, before the source starts.
	Subscribe(changed func(types.UID), gone func(*corev1.Pod)) error
	// HasSynced reports whether the source has listed all its pods.
	HasSynced() bool
	// Get returns the pod with a UID, or nil. The caller must not change it.
	Get(uid types.UID) *corev1.Pod
	// Live asks whether the pod exists although Get returned nil. An error means that the answer is unknown for now.
	Live(ctx context.Context, namespace, name string, uid types.UID) (bool, error)
	// Delete deletes the object of a pod after the runner has removed everything of it. It succeeds if the object is
	// gone.
	Delete(ctx context.Context, pod *corev1.Pod) error
}

// Reporter reports pods' statuses to the API server. It is safe for concurrent use.
type Reporter interface {
	// Changed notes that the status of a pod may differ from the one reported last. It does not block.
	Changed(uid types.UID)
	// Report patches the pod's status to the runner's current one.
	Report(ctx context.Context, pod *corev1.Pod) error
	// Fail sets the status of a pod that the runner does not have, and that has not ended, to Failed with a reason and
	// message.
	Fail(ctx context.Context, pod *corev1.Pod, reason, message string) error
	// Forget drops the notes about a pod.
	Forget(uid types.UID)
}

// The classes of a Runner's errors, matched with errors.Is.
var (
	ErrWaits    = errors.New("waits")
	ErrRejected = errors.New("rejected")
)

// Rejection says why a node does not accept a pod. It uses the kubelet's reasons and messages.
type Rejection struct{ Reason, Message string }

// Admission decides which pods the node accepts. It is safe for concurrent use.
type Admission interface {
	// Admit returns nil if the node accepts the pod. It then reserves the pod's resources until Release.
	Admit(pod *corev1.Pod) *Rejection
	Release(uid types.UID)
}

// unsupported is the reason for pods that Bulkhead can never run.
const unsupported = "UnexpectedAdmissionError"

// Waits reports whether a pod rejected with that reason is retried. Only static pods are, because no controller
// replaces them.
func Waits(pod *corev1.Pod, reason string) bool { return Static(pod.UID) && reason != unsupported }

// ended reports whether a pod has ended according to the API server.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
