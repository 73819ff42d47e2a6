package node

import (
	"crypto/tls"
	"net/http"
	"time"
)

// What the clients of the node's API hold at most, who are known only once a request has been read.
const (
	headerTimeout = 10 * time.Second // until a request's header is there
	idleTimeout   = 90 * time.Second // between two requests of a connection
	maxConns      = 1024
	maxHeader     = 64 << 10 // bytes of a request's header
)

// server serves the node's API. A request that was let in has no deadline here, for streams are long.
func server(handler http.Handler, config *tls.Config) *http.Server {
	return &http.Server{
		Handler: handler, TLSConfig: config, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
}
