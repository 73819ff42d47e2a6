package node

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/pods/manifests"
	"github.com/bulkhead-project/bulkhead/door/node/pods/mirrors"
	"github.com/bulkhead-project/bulkhead/door/node/resources/admission"
	"github.com/bulkhead-project/bulkhead/door/node/resources/preemption"
)

// static manages the static pods of a node. Without a directory there are none, and it ends the pods of an earlier
// process.
type static struct {
	n       *node
	source  *manifests.Source
	pods    atomic.Pointer[control.Controller] // nil until open
	mirrors *mirrors.Controller                // nil without an API server

	mu     sync.Mutex
	names  map[types.UID]types.NamespacedName
	failed map[types.UID]corev1.PodStatus // pods that the node has not accepted
}

var _ control.Reporter = (*static)(nil)

// newStatic returns the static pods of a node. The directory is read by run.
func newStatic(n *node) *static {
	s := &static{n: n, names: map[types.UID]types.NamespacedName{}, failed: map[types.UID]corev1.PodStatus{}}
	of := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.o.Name, UID: types.UID(n.o.Name)}
	s.source = manifests.New(manifests.Options{
		Dir: n.o.Manifests, Node: n.o.Name, Logger: n.o.Logger,
		Problem: func(file string, err error) {
			n.events.Recorder.Event(of, corev1.EventTypeWarning, "InvalidManifest", file+": "+err.Error())
		},
	})
	return s
}

// mirror prepares the mirror pods in the API server. The cache and the keeper of the Node must exist.
func (s *static) mirror() (err error) {
	s.mirrors, err = mirrors.New(mirrors.Options{
		Client: s.n.client, Cache: s.n.cache, Node: func() *corev1.Node { return s.n.keeper.Node() }, Pod: s.pod, Known: s.source.HasSynced,
		Changed: s.n.status.Changed, Logger: s.n.o.Logger,
	})
	return err
}

// open creates the controller. The runner must exist.
func (s *static) open(admits *admission.Admission, preempts *preemption.Manager) error {
	for _, p := range s.n.runner.Pods() {
		s.recordName(p.Original())
	}
	c, err := control.New(control.Options{
		Source: s, Runner: s.n.runner.Static(s.removed), Reporter: s, Admission: admits, Events: s.n.events.Recorder,
		Preempt: preempts.Preempt, Logger: s.n.o.Logger,
	})
	s.pods.Store(c)
	admits.OnFreed(s.retryPending)
	return err
}

// wake requeues a pod. Until the controller exists this does nothing: the controller looks at all pods when it starts.
func (s *static) wake(uid types.UID) {
	if c := s.pods.Load(); c != nil {
		c.Wake(uid)
	}
}

// run works until ctx ends or the directory cannot be watched. It calls ready once the directory has been read.
func (s *static) run(ctx context.Context, ready func()) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.pods.Load().Run(ctx) })
	if s.mirrors != nil {
		all.Go(func() { s.mirrors.Run(ctx) })
	}
	all.Go(func() {
		select {
		case <-s.source.Read():
			if s.n.o.Manifests != "" {
				ready()
			}
		case <-ctx.Done():
		}
	})
	if err = s.source.Run(ctx); err != nil {
		err = fmt.Errorf("node: manifests: %w", err)
	}
	cancel()
	all.Wait()
	return err
}

// recordName records the name of a static pod by its UID.
func (s *static) recordName(p *corev1.Pod) {
	if control.Static(p.UID) {
		s.mu.Lock()
		s.names[p.UID] = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		s.mu.Unlock()
	}
}

// updateMirror requeues a pod's mirror, so that at least its status is updated.
func (s *static) updateMirror(uid types.UID) {
	s.mu.Lock()
	name, known := s.names[uid]
	s.mu.Unlock()
	if known && s.mirrors != nil {
		s.mirrors.Requeue(name.Namespace, name.Name)
	}
}

// requeueEnded requeues a terminated pod, so that its resources are released.
func (s *static) requeueEnded(uid types.UID) {
	if c := s.pods.Load(); c != nil && s.n.runner.HasEnded(uid) {
		c.Wake(uid)
	}
}

// retryPending retries the pods that wait for room on the node.
func (s *static) retryPending() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, status := range s.failed {
		if status.Phase == corev1.PodPending {
			s.wake(uid)
		}
	}
}

// removed is called once the host has nothing left of a pod. Another pod of that name may then run and get the mirror.
func (s *static) removed(namespace, name string) {
	if next := s.source.Named(namespace, name); next != nil {
		s.wake(next.UID)
	}
	if s.mirrors != nil {
		s.mirrors.Requeue(namespace, name)
	}
}

// pod returns the pod of a name that the mirror shows: the pod on the host, and after its removal the pod of the
// directory.
func (s *static) pod(namespace, name string) *corev1.Pod {
	if p := s.n.runner.FindStatic(namespace, name); p != nil {
		return p
	}
	return s.source.Named(namespace, name)
}

// status returns the status of a static pod, and whether it is known.
func (s *static) status(uid types.UID) (corev1.PodStatus, bool) {
	if st, found := s.n.runner.Status(uid); found {
		return st, found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, found := s.failed[uid]
	return st, found
}

// Changed implements control.Reporter.
func (s *static) Changed(uid types.UID) {
	if s.n.runner.Has(uid) && !s.n.runner.Revivable(uid) { // the node has accepted it
		s.mu.Lock()
		delete(s.failed, uid)
		s.mu.Unlock()
	}
	s.updateMirror(uid)
}

// Report implements control.Reporter. The mirror shows how a pod ended, if it exists in time. A pod's end does not wait
// for an API server.
func (s *static) Report(_ context.Context, p *corev1.Pod) error {
	s.updateMirror(p.UID)
	return nil
}

// Fail implements control.Reporter. A pod that waits is pending for the given reason.
func (s *static) Fail(_ context.Context, p *corev1.Pod, reason, message string) error {
	status := corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message, StartTime: new(metav1.Now())}
	if control.Waits(p, reason) {
		status.Phase = corev1.PodPending
	}
	s.mu.Lock()
	before, known := s.failed[p.UID]
	if known {
		status.StartTime = before.StartTime
	}
	s.failed[p.UID] = status
	s.mu.Unlock()
	if before.Reason != reason || !known {
		s.n.o.Logger.Warn("a static pod does not run", "pod", p.Namespace+"/"+p.Name, "reason", reason, "message", message)
	}
	s.updateMirror(p.UID)
	return nil
}

// Forget implements control.Reporter.
func (s *static) Forget(uid types.UID) {
	s.updateMirror(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.names, uid)
	delete(s.failed, uid)
}

// changed is called for each pod with a new status.
func (n *node) changed(uid types.UID) {
	if control.Static(uid) || n.status == nil {
		n.static.updateMirror(uid)
		n.static.requeueEnded(uid)
		return
	}
	n.status.Changed(uid)
	if c := n.controller.Load(); c != nil && n.runner.HasEnded(uid) {
		c.Wake(uid) // releases its resources, whether or not the API server has the status
	}
}

// statusOf returns the status of a pod of the API server. A mirror has the status of the static pod that it shows.
func (n *node) statusOf(uid types.UID) (corev1.PodStatus, bool) {
	if p := n.cache.Get(uid); p != nil {
		if shown := control.MirrorOf(p); shown != "" {
			return n.static.status(shown)
		}
	}
	return n.runner.Status(uid)
}
