package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// maxRequest bounds a request's body, in bytes.
const maxRequest = 64 << 20

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/pods", streamed(s.run))
	mux.HandleFunc("GET /v1/pods", answered(s.list))
	mux.HandleFunc("GET /v1/pods/{ref}", answered(s.inspect))
	mux.HandleFunc("GET /v1/pods/{ref}/sandbox", answered(s.facts))
	mux.HandleFunc("GET /v1/pods/{ref}/logs", streamed(s.logs))
	mux.HandleFunc("GET /v1/pods/{ref}/events", streamed(s.listEvents))
	mux.HandleFunc("GET /v1/events", streamed(s.listEvents))
	mux.HandleFunc("GET /v1/stats", answered(s.stats))
	mux.HandleFunc("POST /v1/pods/{ref}/exec", answered(s.exec))
	mux.HandleFunc("POST /v1/pods/{ref}/debug", answered(s.debug))
	mux.HandleFunc("POST /v1/pods/{ref}/attach", answered(s.attach))
	mux.HandleFunc("POST /v1/pods/{ref}/copy", answered(s.copyFiles))
	mux.HandleFunc("POST /v1/pods/{ref}/forward", answered(s.forward))
	mux.HandleFunc("POST /v1/pods/{ref}/connect", answered(s.connect))
	mux.HandleFunc("GET /v1/pods/{ref}/console", answered(s.console))
	mux.HandleFunc("POST /v1/pods/{ref}/await", answered(s.await))
	mux.HandleFunc("POST /v1/pods/{ref}/{verb}", answered(s.verb))
	mux.HandleFunc("DELETE /v1/pods/{ref}", answered(s.remove))
	mux.HandleFunc("GET /v1/images", answered(s.listImages))
	mux.HandleFunc("GET /v1/images/{ref...}", answered(s.inspectImage))
	mux.HandleFunc("POST /v1/images/prune", answered(s.pruneImages))
	mux.HandleFunc("GET /v1/system/df", answered(s.diskUsage))
	mux.HandleFunc("POST /v1/system/prune", answered(s.prune))
	mux.HandleFunc("POST /v1/jsonpath", answered(s.evaluate))
	mux.HandleFunc("GET /v1/pods/{ref}/manifest", answered(s.generate))
	mux.HandleFunc("POST /v1/images/pull", streamed(s.pullImage))
	mux.HandleFunc("POST /v1/images/load", streamed(s.loadImage))
	mux.HandleFunc("POST /v1/images/tag", answered(s.tagImage))
	mux.HandleFunc("DELETE /v1/images/{ref...}", answered(s.removeImage))
	mux.HandleFunc("POST /v1/login", answered(s.login))
	mux.HandleFunc("GET /v1/templates", answered(s.listTemplates))
	mux.HandleFunc("POST /v1/templates", answered(s.buildTemplate))
	mux.HandleFunc("DELETE /v1/templates/{key}", answered(s.removeTemplate))
	mux.HandleFunc("POST /v1/reap", answered(s.reap))
	mux.HandleFunc("GET /v1/version", answered(s.version))
	mux.HandleFunc("POST /v1/shutdown", answered(func(*http.Request) (any, error) {
		s.stop()
		return api.Result{}, nil
	}))
	return mux
}

// answered serves a call whose answer is one JSON value.
func answered(call func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := call(r)
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(statusOf(err))
			v = api.ToError(err)
		}
		// The client that does not read its answer has gone.
		_ = json.NewEncoder(w).Encode(v)
	}
}

// send writes one message of a stream; it fails when the client has gone.
type send func(api.Message) error

// streamed serves a call whose answer is a stream of messages.
func streamed(call func(*http.Request, send) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		flusher := http.NewResponseController(w)
		body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxRequest))
		if err != nil {
			return // the client is gone, or sends what no client of ours does
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		// Sent before anything is done: a client whose engine dies from here
		// on knows that its request was taken, and does not repeat it.
		if err := flusher.Flush(); err != nil {
			return
		}
		enc := json.NewEncoder(w)
		out := func(m api.Message) error {
			if err := enc.Encode(m); err != nil {
				return err
			}
			return flusher.Flush()
		}
		if err := call(r, out); err != nil {
			_ = out(api.Message{Error: api.ToError(err)}) // as above
		}
	}
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, api.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, api.ErrInvalid), errors.Is(err, api.ErrAmbiguous):
		return http.StatusBadRequest
	case errors.Is(err, api.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, api.ErrDenied):
		return http.StatusForbidden
	}
	return http.StatusInternalServerError
}

func decode[T any](r *http.Request) (T, error) {
	var v T
	err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRequest)).Decode(&v)
	if err != nil {
		err = fmt.Errorf("%w request: %w", api.ErrInvalid, err)
	}
	return v, err
}

func (s *server) inspect(r *http.Request) (any, error) {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	p := e.shown()
	if f, err := s.engine.PodFacts(r.Context(), e.pod().Sandbox()); err == nil {
		p.Status.Conditions = append(p.Status.Conditions, machineCondition(f, p.Status.StartTime))
	}
	return p, nil
}

// shown is the pod as the API has it.
func (e *entry) shown() *corev1.Pod {
	p := e.spec().DeepCopy()
	p.Status = e.status()
	p.APIVersion, p.Kind = "v1", "Pod"
	return p
}

func (s *server) facts(r *http.Request) (any, error) {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	return s.engine.PodFacts(r.Context(), e.pod().Sandbox())
}

func (s *server) verb(r *http.Request) (any, error) {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	result := api.Result{Pod: e.key()}
	switch verb := r.PathValue("verb"); verb {
	case "stop":
		req, err := decode[api.StopRequest](r)
		if err != nil {
			return nil, err
		}
		// The end of a pod goes on when the one who asked for it has gone.
		defer s.pods.orphans.begin(func() bool { return left(r.Context()) })()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), endTimeout(e.rec.Pod, req.Grace))
		defer cancel()
		return result, e.stop(ctx, req.Grace)
	case "start":
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), endTimeout(e.rec.Pod, nil))
		defer cancel()
		getenv, err := s.environment(r)
		if err != nil {
			return nil, err
		}
		if err := e.start(ctx, getenv); err != nil {
			return nil, err
		}
		err = s.started(r.Context(), e, func(api.Message) error { return nil })
		e.pod().KeepTrying()
		return result, err
	case "update":
		req, err := decode[api.UpdateRequest](r)
		if err != nil {
			return nil, err
		}
		return result, e.update(r.Context(), req)
	case "pause", "resume":
		if e.hasEnded() {
			return nil, class(api.ErrConflict, fmt.Errorf("pod %s has ended", e.key()))
		}
		if verb == "resume" {
			return result, s.engine.ResumePodSandbox(r.Context(), e.pod().Sandbox())
		}
		return result, s.engine.PausePodSandbox(r.Context(), e.pod().Sandbox())
	case "wait":
		select {
		case <-e.ended():
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		result.ExitCode = exitCode(e.rec.Pod, e.status())
		return result, nil
	default:
		return nil, fmt.Errorf("%w: no call %q", api.ErrNotFound, verb)
	}
}

func (s *server) remove(r *http.Request) (any, error) {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	defer s.pods.orphans.begin(func() bool { return left(r.Context()) })()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), endTimeout(e.rec.Pod, nil))
	defer cancel()
	return api.Result{Pod: e.key()}, e.remove(ctx, r.URL.Query().Get("force") == "true")
}

func (s *server) exec(r *http.Request) (any, error) {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	req, err := decode[api.ExecRequest](r)
	if err != nil {
		return nil, err
	}
	_, id, err := e.container(req.Container)
	if err != nil {
		return nil, err
	}
	res, err := s.engine.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: req.Command, Tty: req.TTY, Stdin: req.Stdin, Stdout: true, Stderr: !req.TTY,
	})
	if err != nil {
		return nil, e.orPaused(err)
	}
	return parseStream(res.GetUrl())
}

func (s *server) console(r *http.Request) (any, error) {
	e, err := s.pods.find(r.PathValue("ref"))
	if err != nil {
		return nil, err
	}
	if e.hasEnded() {
		return nil, class(api.ErrConflict, fmt.Errorf("pod %s has ended", e.key()))
	}
	u, err := s.engine.Console(r.Context(), e.pod().Sandbox())
	if err != nil {
		return nil, err
	}
	return parseStream(u)
}

// parseStream takes the engine's URL apart: bulkhead+unix://PATH?token=TOKEN.
func parseStream(s string) (api.Stream, error) {
	u, err := url.Parse(s)
	if err != nil {
		return api.Stream{}, fmt.Errorf("the engine's stream: %w", err)
	}
	return api.Stream{Address: u.Path, Token: u.Query().Get("token")}, nil
}
