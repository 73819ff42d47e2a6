package server

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"github.com/bulkhead-project/bulkhead/door/node/server/internal/conns"
)

// Limits for clients of the node's API.
const (
	headerTimeout = 10 * time.Second // until a request's header has arrived
	idleTimeout   = 90 * time.Second // between two requests on a connection
	maxHeader     = 64 << 10         // bytes of a request's header
)

// connLimits limit the API's connections. A review needs two requests to the API server, of at most ten seconds each.
var connLimits = conns.Limits{
	Known: 640, Unknown: 384, Source: 128, Request: 5 * time.Second, Review: 25 * time.Second,
}

// server serves the node's API. Requests that the guard lets in have no deadline here, because streams are long. Failed
// handshakes are logged at debug level only, because any client can cause them.
func server(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// guarded serves the API over TLS: guard authorises the requests to api, and the gate limits the connections.
func guarded(gate *conns.Gate, guard func(http.Handler) http.Handler, api http.Handler, config *tls.Config, log *slog.Logger) *http.Server {
	s := server(gate.LimitReview(guard(gate.Admit(api))), log)
	s.TLSConfig, s.ConnContext = config, gate.Context
	return s
}
