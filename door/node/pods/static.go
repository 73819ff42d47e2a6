package pods

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/pods/internal/manifests"
	"github.com/bulkhead-project/bulkhead/door/node/pods/internal/mirrors"
)

// static manages the static pods of a node. Without a directory there are none, and it ends the pods of an earlier
// process.
type static struct {
	*manifests.Source
	p       *Pods
	pods    *control.Controller // nil before open
	mirrors *mirrors.Controller // nil without an API server
	wakes   control.Queue

	mu     sync.Mutex
	names  map[types.UID]types.NamespacedName
	failed map[types.UID]corev1.PodStatus // pods that the node has not accepted
}

var (
	_ control.Source   = (*static)(nil)
	_ control.Reporter = (*static)(nil)
)

// newStatic returns the static pods of a node. The directory is read by run.
func newStatic(p *Pods) (s *static, err error) {
	s = &static{
		p: p, wakes: control.NewQueue(), names: map[types.UID]types.NamespacedName{}, failed: map[types.UID]corev1.PodStatus{},
	}
	of := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: p.o.Name, UID: types.UID(p.o.Name)}
	s.Source = manifests.New(manifests.Options{
		Dir: p.o.Manifests, Node: p.o.Name, Logger: p.o.Logger,
		Problem: func(file string, err error) {
			p.o.Events.Recorder.Event(of, corev1.EventTypeWarning, "InvalidManifest", file+": "+err.Error())
		},
	})
	if p.cache == nil {
		return s, nil
	}
	s.mirrors, err = mirrors.New(mirrors.Options{
		Client: p.o.Client, Cache: p.cache, Node: p.o.Node, Pod: s.pod, Known: s.HasSynced, Changed: p.status.Changed, Logger: p.o.Logger,
	})
	return s, err
}

// open creates the controller. The runner must exist.
func (s *static) open(of control.Options) (err error) {
	for _, p := range s.p.Pods() {
		s.recordName(p.Original())
	}
	of.Source, of.Runner, of.Reporter, of.Queue = s, s.p.Static(s.removed), s, s.wakes
	s.pods, err = control.New(of)
	return err
}

// Subscribe implements control.Source. It records a new pod's name before the pod runs, and updates its mirror
// afterwards.
func (s *static) Subscribe(changed func(types.UID), gone func(*corev1.Pod)) error {
	return s.Source.Subscribe(func(uid types.UID) {
		if p := s.Get(uid); p != nil {
			s.recordName(p)
		}
		changed(uid)
		s.updateMirror(uid)
	}, func(p *corev1.Pod) {
		gone(p)
		s.updateMirror(p.UID)
	})
}

// run works until ctx ends or the directory cannot be watched. It calls ready once the directory has been read.
func (s *static) run(ctx context.Context, ready func()) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { s.pods.Run(ctx) })
	if s.mirrors != nil {
		all.Go(func() { s.mirrors.Run(ctx) })
	}
	all.Go(func() {
		select {
		case <-s.Read():
			if s.p.o.Manifests != "" {
				ready()
			}
		case <-ctx.Done():
		}
	})
	if err = s.Run(ctx); err != nil {
		err = fmt.Errorf("manifests: %w", err)
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

// retryPending retries the pods that wait for room on the node.
func (s *static) retryPending() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, status := range s.failed {
		if status.Phase == corev1.PodPending {
			s.wakes.Add(uid)
		}
	}
}

// removed is called once the host has nothing left of a pod. Another pod of that name may then run and get the mirror.
func (s *static) removed(namespace, name string) {
	if next := s.Named(namespace, name); next != nil {
		s.wakes.Add(next.UID)
	}
	if s.mirrors != nil {
		s.mirrors.Requeue(namespace, name)
	}
}

// pod returns the pod of a name that the mirror shows: the pod on the host, and after its removal the pod of the
// directory.
func (s *static) pod(namespace, name string) *corev1.Pod {
	if p := s.p.FindStatic(namespace, name); p != nil {
		return p
	}
	return s.Named(namespace, name)
}

// status returns the status of a static pod, and whether it is known.
func (s *static) status(uid types.UID) (corev1.PodStatus, bool) {
	if st, found := s.p.Status(uid); found {
		return st, found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, found := s.failed[uid]
	return st, found
}

// Changed implements control.Reporter.
func (s *static) Changed(uid types.UID) {
	if s.p.Has(uid) && !s.p.Revivable(uid) { // the node has accepted it
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
		s.p.o.Logger.Warn("a static pod does not run", "pod", p.Namespace+"/"+p.Name, "reason", reason, "message", message)
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
