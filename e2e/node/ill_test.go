package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Faults of an API server.
const (
	conflicts = "409"
	busy      = "429"
	broken    = "500"
	silent    = "silent"  // accepts a request, and answers only after recovery
	away      = "away"    // the server is down
	ends      = "ends"    // a watch ends as soon as it has started
	expires   = "expires" // a watch gets the error that its version is too old
)

// ill is an API server that fails some requests and counts all. It is safe for concurrent use.
type ill struct {
	next http.RoundTripper

	mu     sync.Mutex
	fault  string          // "" means healthy
	of     []string        // the failing kinds of requests; empty means all
	well   chan struct{}   // closed on recovery
	counts map[string]int  // since the fault started
	open   map[*cut]string // open watches
}

// operation returns a request's verb and resource: "PATCH pods/status", "WATCH nodes".
func operation(r *http.Request) string {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	words = words[min(len(words), map[string]int{"api": 2, "apis": 3}[words[0]]):]
	if len(words) > 2 && words[0] == "namespaces" {
		words = words[2:]
	}
	resource := strings.Join(words[:min(1, len(words))], "")
	if len(words) > 2 {
		resource += "/" + words[2]
	}
	if r.URL.Query().Get("watch") != "" {
		return "WATCH " + resource
	}
	return r.Method + " " + resource
}

// fall starts a fault. Open watches end.
func (s *ill) fall(fault string, of ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.of, s.well, s.counts = fault, of, make(chan struct{}), map[string]int{}
	for c, which := range s.open {
		if len(of) == 0 || slices.Contains(of, which) {
			_ = c.ReadCloser.Close() // the reader gets an error
		}
	}
}

// recover ends the fault, and returns the number of requests of the failing kinds by verb and resource.
func (s *ill) recover() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = ""
	close(s.well)
	out := map[string]int{}
	for which, n := range s.counts {
		if len(s.of) == 0 || slices.Contains(s.of, which) {
			out[which] = n
		}
	}
	return out
}

var errAway = errors.New("connection refused")

// RoundTrip implements http.RoundTripper.
func (s *ill) RoundTrip(r *http.Request) (*http.Response, error) {
	which := operation(r)
	s.mu.Lock()
	s.counts[which]++
	fault, well := s.fault, s.well
	if len(s.of) > 0 && !slices.Contains(s.of, which) {
		fault = ""
	}
	s.mu.Unlock()
	if fault != "" && r.Body != nil {
		_ = r.Body.Close()
	}
	switch fault {
	case conflicts:
		return refusal(r, http.StatusConflict, "Conflict", nil), nil
	case busy:
		return refusal(r, http.StatusTooManyRequests, "TooManyRequests", http.Header{"Retry-After": {"1"}}), nil
	case broken:
		return refusal(r, http.StatusInternalServerError, "InternalError", nil), nil
	case silent:
		select {
		case <-well:
			return nil, errors.New("connection reset by peer")
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	case away:
		return nil, errAway
	case ends, expires:
		if !strings.HasPrefix(which, "WATCH ") {
			break // lists are answered
		}
		text := ""
		if fault == expires {
			text = `{"type": "ERROR", "object": ` + failure(http.StatusGone, "Expired") + `}`
		}
		return answer(r, http.StatusOK, text, http.Header{"Content-Type": {"application/json;stream=watch"}}), nil
	}
	got, err := s.next.RoundTrip(r)
	if err == nil && strings.HasPrefix(which, "WATCH ") {
		c := &cut{ReadCloser: got.Body, of: s}
		s.mu.Lock()
		s.open[c] = which
		s.mu.Unlock()
		got.Body = c
	}
	return got, err
}

// cut is a watch that can be ended.
type cut struct {
	io.ReadCloser
	of *ill
}

// Close implements io.Closer.
func (c *cut) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.ReadCloser.Close()
}

// refusal returns an error in an API server's format.
func refusal(r *http.Request, code int, reason string, header http.Header) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	maps.Copy(h, header)
	return answer(r, code, failure(code, reason), h)
}

func failure(code int, reason string) string {
	const text = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "the test says so", "reason": %q, "code": %d}`
	return fmt.Sprintf(text, reason, code)
}

func answer(r *http.Request, code int, text string, header http.Header) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}
}
