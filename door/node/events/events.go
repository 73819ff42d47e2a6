// Package events records events of a node's pods in an API server.
package events

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Events records events. It is safe for concurrent use and does not block.
type Events struct {
	Recorder    record.EventRecorder
	broadcaster record.EventBroadcaster
	log         *slog.Logger
}

// New returns the recorder of a node. Without a client, events are logged. The caller calls Close.
func New(client kubernetes.Interface, node string, log *slog.Logger) *Events {
	b := record.NewBroadcaster()
	if client != nil {
		b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	} else {
		b.StartEventWatcher(func(e *corev1.Event) {
			log.Info("event", "of", e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "reason", e.Reason, "message", e.Message)
		})
	}
	return &Events{
		Recorder:    b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "bulkhead", Host: node}),
		broadcaster: b, log: log,
	}
}

// Close stops the recorder. Pending events are lost.
func (e *Events) Close() { e.broadcaster.Shutdown() }

// Pod records an event of a pod, or of one of its containers.
func (e *Events) Pod(p *corev1.Pod, ev pod.Event) {
	kind := corev1.EventTypeNormal
	if ev.Warning {
		kind = corev1.EventTypeWarning
	}
	ref, err := reference.GetReference(scheme.Scheme, p)
	if err != nil {
		e.log.Warn("recording an event failed", "pod", p.Namespace+"/"+p.Name, "error", err)
		return
	}
	ref.FieldPath = fieldPath(p, ev.Container)
	e.Recorder.Event(ref, kind, ev.Reason, ev.Message)
}

// fieldPath returns the path of a container in its pod, as kubelets write it.
func fieldPath(p *corev1.Pod, container string) string {
	if container == "" {
		return ""
	}
	list := "spec.ephemeralContainers"
	for c, kind := range podspec.All(&p.Spec) {
		switch {
		case c.Name != container:
		case kind == podspec.Regular:
			list = "spec.containers"
		default:
			list = "spec.initContainers"
		}
	}
	return list + "{" + container + "}"
}
