// Package view answers the calls that only read pods.
package view

import (
	"log/slog"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/manifest"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// Service answers the calls.
type Service struct {
	Engine *engine.Engine
	Pods   *manager.Manager
	Log    *slog.Logger
	// Ending is closed when the engine begins to end.
	Ending <-chan struct{}
}

// Register adds the calls.
func (s *Service) Register(mux *http.ServeMux) {
	followed := func(call func(*http.Request, calls.Send) error) http.HandlerFunc {
		return calls.Streamed(calls.Followed(s.Ending, call))
	}
	mux.HandleFunc("GET /v1/pods", calls.Answered(s.list))
	mux.HandleFunc("GET /v1/pods/{ref}", refs.Call(s.Pods, s.inspect))
	mux.HandleFunc("GET /v1/pods/{ref}/sandbox", refs.Call(s.Pods, s.facts))
	mux.HandleFunc("GET /v1/pods/{ref}/manifest", refs.Call(s.Pods, s.generate))
	mux.HandleFunc("POST /v1/pods/{ref}/await", calls.With(s.await))
	mux.HandleFunc("GET /v1/stats", calls.Answered(s.stats))
	mux.HandleFunc("GET /v1/watch", followed(s.watch))
	mux.HandleFunc("GET /v1/pods/{ref}/logs", followed(s.logs))
	mux.HandleFunc("GET /v1/pods/{ref}/events", followed(s.listEvents))
	mux.HandleFunc("GET /v1/events", followed(s.listEvents))
}

func (s *Service) inspect(r *http.Request, e *manager.Pod) (any, error) {
	p := shown(e)
	if f, err := s.Engine.Facts(r.Context(), e.Sandbox()); err == nil {
		p.Status.Conditions = append(p.Status.Conditions, vmCondition(f, p.Status.StartTime))
	}
	return p, nil
}

// shown returns the pod as in the API.
func shown(e *manager.Pod) *corev1.Pod {
	p := e.Spec().DeepCopy()
	p.Status = e.Status()
	p.APIVersion, p.Kind = "v1", "Pod"
	return p
}

func (s *Service) facts(r *http.Request, e *manager.Pod) (any, error) {
	return s.Engine.Facts(r.Context(), e.Sandbox())
}

// generate answers with a pod in the form that users write, see manifest.Write.
func (s *Service) generate(r *http.Request, e *manager.Pod) (any, error) {
	if err := e.Damaged(); err != nil {
		return nil, err
	}
	asked, err := e.Written()
	if err != nil {
		return nil, err
	}
	return manifest.Write(asked, e.Objects(), r.URL.Query().Get("secrets") == "true")
}
