// Package api serves a kubelet's HTTP API as far as a node has it: logs, exec, attach, port-forward, the pods and the
// node's health. The caller authorises requests.
package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// Pods are the pods of the host.
type Pods interface {
	// Find returns the newest pod of a name, or nil.
	Find(namespace, name string) *manager.Pod
	Pods() []*manager.Pod
	// Status returns a pod's status as the API server gets it.
	Status(uid types.UID) (corev1.PodStatus, bool)
}

// Server serves the API. It is safe for concurrent use.
type Server struct {
	pods    Pods
	streams runtime.Streams
	more    func(*http.ServeMux)
	log     *slog.Logger
}

// New returns the API for some pods. more registers further paths; it may be nil.
func New(pods Pods, streams runtime.Streams, more func(*http.ServeMux), log *slog.Logger) *Server {
	return &Server{pods, streams, more, log}
}

// Handler returns the API without authorisation.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /pods", s.list)
	mux.HandleFunc("GET /pods/", s.list)
	mux.HandleFunc("GET /runningpods/", s.list)
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", s.answer(s.logs))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, container := range []string{"{namespace}/{pod}/{container}", "{namespace}/{pod}/{uid}/{container}"} {
			mux.Handle(method+" /exec/"+container, s.answer(s.exec))
			mux.Handle(method+" /attach/"+container, s.answer(s.attach))
		}
		for _, pod := range []string{"{namespace}/{pod}", "{namespace}/{pod}/{uid}"} {
			mux.Handle(method+" /portForward/"+pod, s.answer(s.portForward))
		}
	}
	mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "checkpoints of containers are not supported: a pod is a virtual machine", http.StatusNotImplemented)
	})
	if s.more != nil {
		s.more(mux)
	}
	return mux
}

// failure is an error with its HTTP status code.
type failure struct {
	code int
	error
}

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

// answer returns the handler of a call that may fail before it has answered.
func (s *Server) answer(call func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := call(w, r)
		if err == nil {
			return
		}
		var f *failure
		switch {
		case errors.As(err, &f):
		case status.Code(err) == codes.NotFound:
			f = &failure{http.StatusNotFound, err}
		case status.Code(err) == codes.InvalidArgument:
			f = &failure{http.StatusBadRequest, err}
		default:
			f = &failure{http.StatusInternalServerError, err}
		}
		s.log.Info("a request failed", "path", r.URL.Path, "error", err)
		http.Error(w, f.Error(), f.code)
	})
}

// pod returns the pod that a request names.
func (s *Server) pod(r *http.Request) (*manager.Pod, error) {
	p := s.pods.Find(r.PathValue("namespace"), r.PathValue("pod"))
	if uid := r.PathValue("uid"); p == nil || uid != "" && uid != string(p.UID()) {
		return nil, fail(http.StatusNotFound, "pod %q not found in namespace %q", r.PathValue("pod"), r.PathValue("namespace"))
	}
	return p, nil
}

// container returns the ID of the container that a request names.
func (s *Server) container(r *http.Request) (string, error) {
	p, err := s.pod(r)
	if err != nil {
		return "", err
	}
	name := r.PathValue("container")
	id, found := p.Container(name)
	if !found {
		return "", fail(http.StatusNotFound, "container not found (%q)", name)
	}
	return id, nil
}

// list answers with the pods and their statuses.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	running := r.URL.Path == "/runningpods/"
	all := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, p := range s.pods.Pods() {
		status, found := s.pods.Status(p.UID())
		if !found || running && status.Phase != corev1.PodRunning {
			continue
		}
		one := *p.Spec().DeepCopy()
		one.Status = status
		all.Items = append(all.Items, one)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(&all); err != nil {
		s.log.Info("sending the list of pods failed", "error", err)
	}
}
