// Package calls gives the calls of commands their HTTP form: one JSON value or a stream of messages as the answer.
package calls

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

// Answered serves a call that answers with one JSON value.
func Answered(call func(*http.Request) (any, error)) http.HandlerFunc {
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

// With serves a call that gets the JSON value of its request.
func With[T any](call func(*http.Request, T) (any, error)) http.HandlerFunc {
	return Answered(func(r *http.Request) (any, error) {
		req, err := Decode[T](r)
		if err != nil {
			return nil, err
		}
		return call(r, req)
	})
}

// Send writes one message of a stream. It fails if the client has disconnected.
type Send func(api.Message) error

// Streamed serves a call that answers with a stream of messages.
func Streamed(call func(*http.Request, Send) error) http.HandlerFunc {
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

// Followed ends a stream that only reads when the engine begins to stop, which closes ending.
// Otherwise the engine would wait for the stream.
func Followed(ending <-chan struct{}, call func(*http.Request, Send) error) func(*http.Request, Send) error {
	return func(r *http.Request, out Send) error {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		go func() {
			select {
			case <-ending:
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

// Decode reads the JSON value of a request.
func Decode[T any](r *http.Request) (T, error) {
	var v T
	err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRequest)).Decode(&v)
	if err != nil {
		err = errclass.New(errdefs.ErrInvalidArgument, "invalid request: %w", err)
	}
	return v, err
}
