// Package shutdown ends a node's pods before the host shuts down. It holds an inhibitor lock of logind, receives
// logind's shutdown signal, ends the pods, critical ones last, and releases the lock.
package shutdown

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/retry"
)

// Reason and Message are set on pods that the shutdown ends. RejectReason and RejectMessage are set on pods that arrive
// too late. NodeMessage is for the Node. All are the kubelet's texts.
const (
	Reason        = "Terminated"
	Message       = "Pod was terminated in response to imminent node shutdown."
	RejectReason  = "NodeShutdown"
	RejectMessage = "Pod was rejected as the node is shutting down."
	NodeMessage   = "node is shutting down"
)

// Options configures a Manager. All fields but Address and Logger are required.
type Options struct {
	// Period is the longest delay of the host's shutdown. Critical is its part for critical pods.
	Period, Critical time.Duration
	// Address is the D-Bus address of logind. If it is empty, logind is on the system bus.
	Address string
	// Pods returns the running pods. IsCritical reports which of them end last.
	Pods       func() []*corev1.Pod
	IsCritical func(*corev1.Pod) bool
	// End ends a pod within grace, in seconds. It returns when the pod has ended and its end was reported.
	End func(ctx context.Context, pod *corev1.Pod, grace int64) error
	// Changed is called when Ending has changed. It must not block.
	Changed func()
	// Warn publishes a warning event about the node.
	Warn   func(reason, message string)
	Logger *slog.Logger
}

// Manager waits for the host's shutdown. It is safe for concurrent use. The caller must call Run once.
type Manager struct {
	o      Options
	ending atomic.Bool
}

// New returns a Manager.
func New(o Options) *Manager {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Manager{o: o}
}

// Ending reports whether the host is about to shut down, with the message for the Node.
func (m *Manager) Ending() (message string, ending bool) { return NodeMessage, m.ending.Load() }

// Run works until ctx ends. If logind cannot be reached, Run reports that and retries. Until it succeeds, the host's
// shutdown is not delayed.
func (m *Manager) Run(ctx context.Context) {
	pauses, logged := retry.Pauses{First: time.Second, Last: time.Minute}, ""
	for {
		began := time.Now()
		err := m.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > pauses.Last {
			pauses.Reset()
			logged = ""
		}
		if text := fmt.Sprintf("pods will not be ended before the host shuts down: %v", err); text != logged {
			logged = text
			m.o.Logger.Error(text)
			m.o.Warn("GracefulNodeShutdownUnavailable", text)
		}
		if !retry.Sleep(ctx, pauses.Next(), nil) {
			return
		}
	}
}

// serve follows logind's signals until the connection ends.
func (m *Manager) serve(ctx context.Context) error {
	l, err := connect(ctx, m.o.Address)
	if err != nil {
		return err
	}
	defer l.close()
	delay, err := l.delay(ctx)
	if err != nil {
		return err
	}
	period := m.o.Period
	if delay < period {
		m.o.Logger.Warn("logind delays a shutdown for less time than requested: set InhibitDelayMaxSec in logind.conf",
			"asked", period, "has", delay)
		period = delay
	}
	m.o.Logger.Info("pods are ended before the host shuts down", "within", period)
	// Before the connection, a shutdown may have been started or cancelled.
	down, err := l.down(ctx)
	for ; err == nil; down, err = l.next(ctx) {
		if m.ending.Swap(down) != down {
			m.o.Changed()
		}
		if !down {
			if err := l.inhibit(ctx); err != nil {
				return err
			}
			continue
		}
		m.o.Logger.Warn("the host shuts down: ending the pods", "within", period)
		m.endPods(ctx, period)
		l.release()
	}
	return err
}

// endPods ends the pods. The critical pods follow when the others have ended or their time is over.
func (m *Manager) endPods(ctx context.Context, period time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	critical := min(m.o.Critical, period)
	groups := map[bool][]*corev1.Pod{}
	for _, pod := range m.o.Pods() {
		is := m.o.IsCritical(pod)
		groups[is] = append(groups[is], pod)
	}
	m.endGroup(ctx, groups[false], period-critical)
	m.endGroup(ctx, groups[true], critical)
}

func (m *Manager) endGroup(ctx context.Context, pods []*corev1.Pod, period time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, max(period, time.Second)) // pods without any time are still killed
	defer cancel()
	var all sync.WaitGroup
	for _, pod := range pods {
		grace := int64(period / time.Second)
		if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
			grace = min(grace, *own)
		}
		all.Go(func() {
			if err := m.o.End(ctx, pod, grace); err != nil {
				m.o.Logger.Warn("a pod did not end before the shutdown", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			}
		})
	}
	all.Wait()
}
