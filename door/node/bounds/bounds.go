// Package bounds gives each request to an API server a deadline, so that nobody waits for ever for one that takes
// requests and does not answer, and has nobody watch the same again and again without a pause.
package bounds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// request is how long a request and its answer may take. An API server gives up after a minute.
	request = 70 * time.Second
	// lease is the same of a lease, which is renewed every ten seconds and is over after forty.
	lease = 10 * time.Second
	// watchSlack is how much longer a watch may last than it was asked for.
	watchSlack = 30 * time.Second
)

// ErrLate is matched by the error of a request that was given up.
var ErrLate = errors.New("the API server did not answer in time")

// Wrap bounds each request that goes through next. It is made for rest.Config.Wrap.
func Wrap(next http.RoundTripper) http.RoundTripper { return &transport{next: next} }

type transport struct {
	next    http.RoundTripper
	watches watches
}

// WrappedRoundTripper has client-go find the one below, whose idle connections it closes.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	begins, ends := of(r)
	if watched(r) {
		if err := t.watches.wait(r); err != nil {
			cancel(nil)
			return nil, err
		}
	}
	timer := time.AfterFunc(begins, func() { cancel(ErrLate) })
	answer, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		timer.Stop()
		if late := context.Cause(ctx); errors.Is(late, ErrLate) {
			err = fmt.Errorf("%w: %w", late, err)
		}
		cancel(nil)
		return nil, err
	}
	if ends == 0 {
		timer.Stop()
	} else if ends != begins {
		timer.Reset(ends)
	}
	answer.Body = &body{ReadCloser: answer.Body, done: func() { timer.Stop(); cancel(nil) }}
	return answer, nil
}

// of is how long a request may take until it is answered, and from then on until the answer has been read; the same for one
// that has one deadline for both, and 0 for a watch without an end.
func of(r *http.Request) (begins, ends time.Duration) {
	if watched(r) {
		seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
		if err != nil || seconds <= 0 {
			return request, 0
		}
		return request, time.Duration(seconds)*time.Second + watchSlack
	}
	if strings.Contains(r.URL.Path, "/leases/") || strings.HasSuffix(r.URL.Path, "/leases") {
		return lease, lease
	}
	return request, request
}

// watched tells whether a request is a watch.
func watched(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch != "" && watch != "false" && watch != "0"
}

// body ends the deadline of an answer that has been read.
type body struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
