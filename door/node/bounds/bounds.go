// Package bounds gives each request to an API server a deadline, so that no caller waits for ever for a server that
// accepts requests but does not answer. It also limits how often the same objects are watched.
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
	// request limits the time for a request and its answer. An API server gives up after a minute.
	request = 70 * time.Second
	// lease is the same limit for a lease, which is renewed every ten seconds and expires after forty.
	lease = 10 * time.Second
	// watchSlack is added to the timeout that a watch requests.
	watchSlack = 30 * time.Second
)

// ErrLate is matched by the error of a request that exceeded its deadline.
var ErrLate = errors.New("the API server did not answer in time")

// Wrap returns a transport that bounds the requests through next. It fits rest.Config.Wrap.
func Wrap(next http.RoundTripper) http.RoundTripper { return &transport{next: next} }

type transport struct {
	next    http.RoundTripper
	watches watches
}

// WrappedRoundTripper returns the wrapped transport, for client-go, which closes its idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	begins, ends := limitsOf(r)
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

// limitsOf returns the time limits of a request: until the answer begins, and from then on until it has been read. If
// both are equal, one deadline holds for the whole request. 0 means no limit, for a watch without a timeout.
func limitsOf(r *http.Request) (begins, ends time.Duration) {
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

// watched reports whether a request is a watch.
func watched(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch != "" && watch != "false" && watch != "0"
}

// body stops the timer of an answer when it is closed.
type body struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
