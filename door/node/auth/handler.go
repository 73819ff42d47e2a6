package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
)

// streams are the paths of requests that run something or reach into a pod: they are authorised as
// create, by whatever method they come.
var streams = []string{"/exec/", "/attach/", "/portForward/", "/run/"}

// finer are the paths that have a subresource of their own, by their beginnings; all others are of
// proxy.
var finer = []struct{ path, subresource string }{
	{"/stats", "stats"}, {"/metrics", "metrics"}, {"/logs", "log"}, {"/healthz", "healthz"}, {"/configz", "configz"},
	{"/pods", "pods"}, {"/runningpods", "pods"}, {"/checkpoint", "checkpoint"},
}

// attributes are what a request is authorised as: a verb, and the subresources of which one suffices.
func attributes(r *http.Request) (verb string, subresources []string) {
	for _, beginning := range streams {
		if strings.HasPrefix(r.URL.Path, beginning) {
			return "create", []string{"proxy"}
		}
	}
	verb = map[string]string{
		http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[r.Method]
	for _, f := range finer {
		if r.URL.Path != f.path && !strings.HasPrefix(r.URL.Path, f.path+"/") {
			continue
		}
		switch f.subresource {
		case "stats", "metrics", "log", "checkpoint":
			return verb, []string{f.subresource}
		}
		return verb, []string{f.subresource, "proxy"}
	}
	return verb, []string{"proxy"}
}

// Guard lets through to next whom the API server lets.
func (h *Webhook) Guard(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := h.Who(r)
		if err != nil {
			fail(w, r, "authenticated", err, log)
			return
		}
		verb, subresources := attributes(r)
		for _, sub := range subresources {
			allowed, err := h.May(r.Context(), u, verb, sub)
			if err != nil {
				fail(w, r, "authorised", err, log)
				return
			}
			if allowed {
				next.ServeHTTP(w, r)
				return
			}
		}
		message := fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", u.Name, verb, subresources)
		refuse(w, message, http.StatusForbidden)
	})
}

// fail answers a request that could not be judged, or of which it is not known who makes it.
func fail(w http.ResponseWriter, r *http.Request, what string, err error, log *slog.Logger) {
	switch {
	case errors.Is(err, ErrUnknown):
		refuse(w, "Unauthorized", http.StatusUnauthorized)
	case errors.Is(err, ErrBusy):
		w.Header().Set("Retry-After", "1")
		refuse(w, ErrBusy.Error(), http.StatusTooManyRequests)
	default:
		log.Warn("a request could not be "+what, "path", r.URL.Path, "error", err)
		refuse(w, "the API server could not be reached", http.StatusInternalServerError)
	}
}

// refuse answers, and ends the connection: who is not let in holds none.
func refuse(w http.ResponseWriter, message string, code int) {
	w.Header().Set("Connection", "close")
	http.Error(w, message, code)
}
