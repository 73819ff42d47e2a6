package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// maxRequest bounds a request's body, in bytes.
const maxRequest = 64 << 20

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/pods", streamed(s.run))
	mux.HandleFunc("GET /v1/pods", answered(s.list))
	mux.HandleFunc("GET /v1/watch", streamed(s.followed(s.watch)))
	mux.HandleFunc("POST /v1/names", answered(s.names))
	mux.HandleFunc("GET /v1/pods/{ref}", answered(s.inspect))
	mux.HandleFunc("GET /v1/pods/{ref}/sandbox", answered(s.facts))
	mux.HandleFunc("GET /v1/pods/{ref}/logs", streamed(s.followed(s.logs)))
	mux.HandleFunc("GET /v1/pods/{ref}/events", streamed(s.followed(s.listEvents)))
	mux.HandleFunc("GET /v1/events", streamed(s.followed(s.listEvents)))
	mux.HandleFunc("GET /v1/stats", answered(s.stats))
	mux.HandleFunc("POST /v1/pods/{ref}/exec", answered(s.exec))
	mux.HandleFunc("POST /v1/pods/{ref}/debug", answered(s.debug))
	mux.HandleFunc("POST /v1/pods/{ref}/attach", answered(s.attach))
	mux.HandleFunc("POST /v1/pods/{ref}/copy", answered(s.copyFiles))
	mux.HandleFunc("POST /v1/pods/{ref}/forward", answered(s.forward))
	mux.HandleFunc("POST /v1/pods/{ref}/connect", answered(s.connect))
	mux.HandleFunc("GET /v1/pods/{ref}/console", answered(s.console))
	mux.HandleFunc("POST /v1/pods/{ref}/kill", answered(s.kill))
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
	mux.HandleFunc("POST /v1/images/save", answered(s.saveImage))
	mux.HandleFunc("DELETE /v1/images/{ref...}", answered(s.removeImage))
	mux.HandleFunc("POST /v1/login", answered(s.login))
	mux.HandleFunc("GET /v1/templates", answered(s.listTemplates))
	mux.HandleFunc("POST /v1/templates", answered(s.buildTemplate))
	mux.HandleFunc("DELETE /v1/templates/{key}", answered(s.removeTemplate))
	mux.HandleFunc("GET /v1/volumes", answered(s.listVolumes))
	mux.HandleFunc("POST /v1/volumes", answered(s.createVolume))
	mux.HandleFunc("GET /v1/volumes/{name}", answered(s.inspectVolume))
	mux.HandleFunc("DELETE /v1/volumes/{name}", answered(s.removeVolume))
	mux.HandleFunc("POST /v1/volumes/{name}/resize", answered(s.resizeVolume))
	mux.HandleFunc("POST /v1/prune/volumes", answered(s.pruneVolumes))
	mux.HandleFunc("POST /v1/reap", answered(s.reap))
	mux.HandleFunc("GET /v1/version", answered(s.version))
	mux.HandleFunc("POST /v1/shutdown", answered(func(*http.Request) (any, error) {
		s.stop()
		return api.Result{}, nil
	}))
	return mux
}

// answered serves a call that answers with one JSON value.
func answered(call func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := call(r)
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(statusOf(err))
			v = api.ToError(err)
		}
		// A failed write means that the client has disconnected.
		_ = json.NewEncoder(w).Encode(v)
	}
}

// send writes one message of a stream. It fails if the client has disconnected.
type send func(api.Message) error

// streamed serves a call that answers with a stream of messages.
func streamed(call func(*http.Request, send) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		flusher := http.NewResponseController(w)
		body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxRequest))
		if err != nil {
			return // the client has disconnected, or is not one of ours
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		// The header is sent before any work: if the engine dies later, the client knows that its request was
		// accepted, and does not repeat it.
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
			_ = out(api.Message{Error: api.ToError(err)}) // an error means that the client has disconnected
		}
	}
}

// errEnding ends streams when the engine stops.
var errEnding = errors.New("the engine is stopping: run the command again, which starts a new one")

// followed ends a stream that only reads when the engine begins to stop. Otherwise the engine would wait for the
// stream.
func (s *server) followed(call func(*http.Request, send) error) func(*http.Request, send) error {
	return func(r *http.Request, out send) error {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		go func() {
			select {
			case <-s.ending:
				cancel(errEnding)
			case <-ctx.Done():
			}
		}()
		err := call(r.WithContext(ctx), out)
		if errors.Is(context.Cause(ctx), errEnding) {
			err = errEnding
		}
		return err
	}
}

// statusOf returns the HTTP status of an error's class.
func statusOf(err error) int {
	class := errclass.Of(err)
	is := func(one error) bool { return errors.Is(class, one) }
	switch {
	case is(errdefs.ErrNotFound):
		return http.StatusNotFound
	case is(errdefs.ErrInvalidArgument):
		return http.StatusBadRequest
	case is(errdefs.ErrConflict), is(errdefs.ErrAlreadyExists), is(errdefs.ErrFailedPrecondition):
		return http.StatusConflict
	case is(errdefs.ErrUnauthenticated):
		return http.StatusForbidden
	}
	return http.StatusInternalServerError
}

func decode[T any](r *http.Request) (T, error) {
	var v T
	err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRequest)).Decode(&v)
	if err != nil {
		err = errclass.New(errdefs.ErrInvalidArgument, "invalid request: %w", err)
	}
	return v, err
}
