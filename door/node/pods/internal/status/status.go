// Package status reports the statuses of a node's pods to an API server. It patches only changes, and of the conditions
// only the node's own. The pod's UID is a precondition, so that a patch never hits another pod of the same name.
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/pods/internal/queue"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

const (
	// workers is the number of statuses reported concurrently.
	workers = 16
	// gather is how long a change waits for further changes, which are reported with it.
	gather = 100 * time.Millisecond
	// firstPause and lastPause bound the pauses between retries.
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Options configures a Reporter. All fields but Gather and Logger are required.
type Options struct {
	Client kubernetes.Interface
	// Pod returns a pod as the API server had it last, or nil.
	Pod func(types.UID) *corev1.Pod
	// Status returns the runner's status of a pod, and false if it has none.
	Status func(types.UID) (corev1.PodStatus, bool)
	// Gather defaults to 100 ms.
	Gather time.Duration
	Logger *slog.Logger
}

// Reporter reports statuses. It is safe for concurrent use.
type Reporter struct {
	o     Options
	queue queue.Queue[types.UID]

	mu   sync.Mutex
	last map[types.UID]*answer
}

// answer is the API server's last answer for a pod. Its lock is held while the pod's status is reported.
type answer struct {
	sync.Mutex
	version string
	status  corev1.PodStatus
}

// New returns a Reporter. The caller must call Run once.
func New(o Options) *Reporter {
	o.Gather = cmp.Or(o.Gather, gather)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Reporter{o: o, queue: queue.New[types.UID](firstPause, lastPause), last: map[types.UID]*answer{}}
}

// Changed notes that the status of a pod has changed. It does not block.
func (r *Reporter) Changed(uid types.UID) { r.queue.AddAfter(uid, r.o.Gather) }

// Run reports changes until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	r.queue.Run(ctx, workers, func(ctx context.Context, uid types.UID) error {
		pod := r.o.Pod(uid)
		if pod == nil { // not in the API server, or no longer
			r.Forget(uid)
			return nil
		}
		return r.Report(ctx, pod)
	}, func(uid types.UID, err error) {
		r.o.Logger.Warn("retrying to report a status", "uid", uid, "error", err)
	})
}

// Report patches the status of a pod to the runner's current one. It succeeds if the API server or the runner does not
// have the pod.
func (r *Reporter) Report(ctx context.Context, pod *corev1.Pod) error {
	return r.patch(ctx, pod, func(old *corev1.PodStatus) (corev1.PodStatus, bool) {
		now, found := r.o.Status(pod.UID)
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		return merge(old, now, mirror), found
	})
}

// Fail sets the status of a pod that the runner does not have to Failed, with no running container. A pod that has
// ended according to the API server keeps its status.
func (r *Reporter) Fail(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	return r.patch(ctx, pod, func(old *corev1.PodStatus) (corev1.PodStatus, bool) {
		if podstatus.Ended(old) {
			return *old, false
		}
		return failed(old, reason, message), true
	})
}

// Forget drops the notes about a pod.
func (r *Reporter) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, uid)
}

func (r *Reporter) answerOf(uid types.UID) *answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last[uid] == nil {
		r.last[uid] = &answer{}
	}
	return r.last[uid]
}

// patch replaces the newest known status by the one that next returns.
func (r *Reporter) patch(ctx context.Context, pod *corev1.Pod, next func(old *corev1.PodStatus) (corev1.PodStatus, bool)) error {
	last := r.answerOf(pod.UID)
	last.Lock()
	defer last.Unlock()
	old := &pod.Status
	if newer(last.version, pod.ResourceVersion) {
		old = &last.status
	}
	status, found := next(old)
	if !found {
		return nil
	}
	patch, err := diff(pod.UID, old, &status)
	if err != nil || patch == nil {
		return err
	}
	fault.Point("node.telling")
	got, err := r.o.Client.CoreV1().Pods(pod.Namespace).Patch(
		ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if apierrors.IsConflict(err) { // the name may belong to another pod by now
		if now := r.o.Pod(pod.UID); now == nil || now.UID != pod.UID {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("patch the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	fault.Point("node.told")
	last.version, last.status = got.ResourceVersion, got.Status
	return nil
}

// newer reports whether version a of an object is b or later. An unknown version is older than any.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order >= 0
}

// diff returns the patch from one status to another with the UID as a precondition, or nil if they are equal.
func diff(uid types.UID, old, next *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: *old})
	if err != nil {
		return nil, fmt.Errorf("write a status: %w", err)
	}
	bare, err := json.Marshal(corev1.Pod{Status: *next})
	if err != nil {
		return nil, fmt.Errorf("write a status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, bare, corev1.Pod{})
	if err != nil || string(patch) == "{}" {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *next})
	if err != nil {
		return nil, fmt.Errorf("write a status: %w", err)
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}
