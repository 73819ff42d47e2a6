// Package pods has the pods that a source names, an API server's that are bound to the node or a
// directory's, run there. It follows those pods and no others, compares each with what the machine has of it, by its UID, and
// does what is missing: run, bring up to date, end, and delete the object when nothing of the
// pod is left.
//
// What fails is tried again for ever, with pauses that grow to a bound. A pod that is new is
// never held up.
package pods

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Runner runs the pods of this machine, by their UIDs. Its methods may be called at once, for
// one UID as well.
type Runner interface {
	// Run takes a pod in, which is not there, and starts it. The error matches ErrWaits for a
	// pod that is not to be tried again before Wake names it or some seconds have passed, and
	// ErrRejected for one that can never run.
	Run(ctx context.Context, pod *corev1.Pod) error
	// Update brings a pod that is there up to date. The error matches ErrWaits for one that is to be tried
	// again after some seconds.
	Update(ctx context.Context, pod *corev1.Pod) error
	// Stop ends a pod within grace, in seconds, and returns when it has ended. A later one can
	// shorten the grace.
	Stop(ctx context.Context, uid types.UID, grace int64) error
	// Remove removes all that is left of a pod that has ended, its machine first.
	Remove(ctx context.Context, uid types.UID) error
	// Forget drops what is kept of a pod that is not there.
	Forget(uid types.UID)
	// Has tells whether anything of the pod is there.
	Has(uid types.UID) bool
	// HasEnded tells whether the pod is there and has ended.
	HasEnded(uid types.UID) bool
	// Revivable tells whether the pod is there, and has ended for a reason that passes.
	Revivable(uid types.UID) bool
	// Revive runs such a pod again.
	Revive(ctx context.Context, uid types.UID) error
	// Given is the pod as it was given last, nil for none.
	Given(uid types.UID) *corev1.Pod
	// All are the pods that are there.
	All() []types.UID
}

// Source has the pods that a node is to run. Its methods may be called at once.
type Source interface {
	// Follow has changed be called for each pod that is new or another than before, and gone for each
	// that is there no more. Neither may block. It is called once, before the source begins.
	Follow(changed func(types.UID), gone func(*corev1.Pod)) error
	// HasSynced tells whether the source knows all its pods.
	HasSynced() bool
	// Get is the pod of a UID, nil for none. It must not be changed.
	Get(uid types.UID) *corev1.Pod
	// Live asks whether there is a pod of that UID although Get has none. An error says that this cannot
	// be told now.
	Live(ctx context.Context, namespace, name string, uid types.UID) (bool, error)
	// Delete removes the object of a pod of which the machine has nothing any more. It succeeds for one
	// that is gone.
	Delete(ctx context.Context, pod *corev1.Pod) error
}

// Reporter tells the API server of pods' statuses. Its methods may be called at once.
type Reporter interface {
	// Changed says that the status of a pod may be another one than was told. It does not block.
	Changed(uid types.UID)
	// Report patches the status of a pod as the machine has it now.
	Report(ctx context.Context, pod *corev1.Pod) error
	// Fail patches the status of a pod that the machine does not have, and that has not ended:
	// it has failed, with that reason and message.
	Fail(ctx context.Context, pod *corev1.Pod, reason, message string) error
	// Forget drops what is kept of a pod.
	Forget(uid types.UID)
}

// The classes of a Runner's errors, matched with errors.Is.
var (
	ErrWaits    = errors.New("waits")
	ErrRejected = errors.New("rejected")
)

// Rejection is why a node does not take a pod, in the kubelet's words.
type Rejection struct{ Reason, Message string }

// Admission decides which pods the node takes. Its methods may be called at once.
type Admission interface {
	// Admit returns nil for a pod that the node takes, whose resources are its own until Release.
	Admit(pod *corev1.Pod) *Rejection
	Release(uid types.UID)
}

// unsupported is the reason of what no node of Bulkhead's ever takes.
const unsupported = "UnexpectedAdmissionError"

// Waits tells whether a pod that was rejected with that reason is tried again. Nobody makes another pod in the place of a
// static one.
func Waits(pod *corev1.Pod, reason string) bool { return Static(pod.UID) && reason != unsupported }

// ended tells whether a pod has ended as the API server has it.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
