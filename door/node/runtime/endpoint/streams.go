package endpoint

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"

	"k8s.io/apimachinery/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// Exec connects an HTTP client with a command in a container.
func (r *Runtime) Exec(w http.ResponseWriter, req *http.Request, what *runtimeapi.ExecRequest) error {
	to, err := r.runtime.Exec(req.Context(), what)
	return proxyStream(w, req, to.GetUrl(), err)
}

// Attach connects an HTTP client with a container.
func (r *Runtime) Attach(w http.ResponseWriter, req *http.Request, what *runtimeapi.AttachRequest) error {
	to, err := r.runtime.Attach(req.Context(), what)
	return proxyStream(w, req, to.GetUrl(), err)
}

// PortForward connects an HTTP client with ports of a pod.
func (r *Runtime) PortForward(w http.ResponseWriter, req *http.Request, what *runtimeapi.PortForwardRequest) error {
	to, err := r.runtime.PortForward(req.Context(), what)
	return proxyStream(w, req, to.GetUrl(), err)
}

// proxyStream forwards a request to the runtime's streaming server, without the client's credentials.
func proxyStream(w http.ResponseWriter, req *http.Request, to string, err error) error {
	if err != nil {
		return err
	}
	at, err := parseAddress(to)
	if err != nil {
		return err
	}
	if !httpstream.IsUpgradeRequest(req) {
		http.Error(w, "streams need an upgrade of the connection", http.StatusBadRequest)
		return nil
	}
	next := req.Clone(req.Context())
	next.Header.Del("Authorization")
	next.Header.Del("Cookie")
	proxy.NewUpgradeAwareHandler(at, nil, false, true, responder{}).ServeHTTP(w, next)
	return nil
}

// parseAddress parses the URL that a runtime returns for a stream. It accepts only servers on the host's loopback.
func parseAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("address of a stream: %w", err)
	}
	host, err := netip.ParseAddrPort(u.Host)
	if err != nil || u.Scheme != "http" || !host.Addr().IsLoopback() || u.User != nil {
		return nil, fmt.Errorf("address of a stream: %s://%s must be http on a loopback address", u.Scheme, u.Host)
	}
	return u, nil
}

// responder sends an error of the streaming server to the client.
type responder struct{}

// Error implements proxy.ErrorResponder.
func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}
