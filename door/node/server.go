package node

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"github.com/bulkhead-project/bulkhead/door/node/conns"
)

// The bounds of what clients of the node's API hold.
const (
	headerTimeout = 10 * time.Second // until a request's header is there
	idleTimeout   = 90 * time.Second // between two requests of a connection
	maxHeader     = 64 << 10         // bytes of a request's header
)

// connLimits are those of the API's connections. A verdict takes two questions to the API server, of ten seconds each at most.
var connLimits = conns.Limits{
	Known: 640, Unknown: 384, Source: 128, Request: 5 * time.Second, Verdict: 25 * time.Second,
}

// server serves the node's API. A request that was let in has no deadline here, for streams are long. Failed handshakes, which
// anybody can cause, are logged for debugging only.
func server(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// guarded serves it to anybody: guard decides about the requests to api, and the gate bounds the connections.
func guarded(gate *conns.Gate, guard func(http.Handler) http.Handler, api http.Handler, config *tls.Config, log *slog.Logger) *http.Server {
	s := server(gate.Judge(guard(gate.Admit(api))), log)
	s.TLSConfig, s.ConnContext = config, gate.Context
	return s
}
