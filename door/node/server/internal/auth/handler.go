package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
)

// streams are the paths of requests that run a command or reach into a pod. They need the verb create, whatever their
// method is.
var streams = []string{"/exec/", "/attach/", "/portForward/", "/run/"}

// finer are path prefixes with a subresource of their own. All other paths need the subresource proxy.
var finer = []struct{ path, subresource string }{
	{"/stats", "stats"}, {"/metrics", "metrics"}, {"/logs", "log"}, {"/healthz", "healthz"}, {"/configz", "configz"},
	{"/pods", "pods"}, {"/runningpods", "pods"}, {"/checkpoint", "checkpoint"},
}

// attributes returns the verb that a request needs, and the subresources. One of them suffices.
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

// Guard calls next only if the API server authorises the request.
func (h *Webhook) Guard(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := h.Authenticate(r)
		if err != nil {
			fail(w, r, "authenticated", err, log)
			return
		}
		verb, subresources := attributes(r)
		for _, sub := range subresources {
			allowed, err := h.Authorize(r.Context(), u, verb, sub)
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

// fail answers a request that could not be authenticated or reviewed.
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

// refuse answers and closes the connection, so that a refused client does not hold one.
func refuse(w http.ResponseWriter, message string, code int) {
	w.Header().Set("Connection", "close")
	http.Error(w, message, code)
}
