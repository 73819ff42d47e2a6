package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	maxHeader    = 64 << 10 // bytes of an answer's header
	maxRedirects = 10
	// noHost is the address of a pod without a network.
	noHost = "127.0.0.1"
)

// HTTP makes the request of action to a port of the pod. A status from 200 to 399 is a Success with the response's
// body. Redirections on the same host are followed; one to another host is a Warning. Everything else, including
// transport errors, is a Failure with the reason. host is the pod's address. It or the action's own host names the pod
// in the request, but dial always makes the connection.
//
// The server's certificate is not verified, no proxy is used, and at most 10 KiB of the body are read.
func HTTP(ctx context.Context, dial Dialer, action *corev1.HTTPGetAction, port int, host string) (Result, string, error) {
	req, err := request(ctx, action, port, host, probeAgent)
	if err != nil {
		return Unknown, "", err
	}
	res, done, err := send(req, dial, action)
	defer done()
	if errors.Is(err, ErrNotAsked) {
		return Unknown, "", err
	}
	if err != nil {
		return Failure, Stable(err.Error()), nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	switch {
	case err != nil:
		return Failure, Stable(fmt.Sprintf("Get %q: read the response: %v", req.URL, err)), nil
	case res.StatusCode >= http.StatusOK && res.StatusCode < http.StatusMultipleChoices:
		return Success, string(body), nil
	case res.StatusCode >= http.StatusMultipleChoices && res.StatusCode < http.StatusBadRequest:
		return Warning, "Probe terminated redirects, Response body: " + string(body), nil
	}
	// Leave the body out, like the kubelet: readers of a pod's events may not be allowed to see its server's content.
	return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", res.StatusCode), nil
}

// hookHTTP makes the request of a lifecycle hook. Like the kubelet, it accepts any response, and returns an error only
// if there was none.
func hookHTTP(ctx context.Context, dial Dialer, action *corev1.HTTPGetAction, port int, host string) error {
	req, err := request(ctx, action, port, host, hookAgent)
	if err != nil {
		return err
	}
	res, done, err := send(req, dial, action)
	defer done()
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// send makes a request through dial. done closes its connections.
func send(req *http.Request, dial Dialer, action *corev1.HTTPGetAction) (res *http.Response, done func(), err error) {
	l := &line{ctx: req.Context(), dial: dial}
	transport := &http.Transport{
		DialContext:            func(_ context.Context, _, address string) (net.Conn, error) { return l.dialAddress(address) },
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, // probes do not verify the server's identity
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		// Do not buffer unread data of a response. The default is up to 4 MiB.
		HTTP2:     &http.HTTP2Config{MaxReceiveBufferPerStream: maxHeader, MaxReceiveBufferPerConnection: maxHeader},
		Protocols: protocols(action),
	}
	client := &http.Client{Transport: transport, CheckRedirect: sameHost}
	res, err = client.Do(req)
	if _, failed := l.outcome(); err != nil && errors.Is(failed, ErrNotAsked) {
		err = &url.Error{Op: "Get", URL: req.URL.String(), Err: failed}
	}
	return res, transport.CloseIdleConnections, err
}

// request returns the action's request, with a kubelet's headers.
func request(ctx context.Context, action *corev1.HTTPGetAction, port int, host, agent string) (*http.Request, error) {
	if action.Host != "" {
		host = action.Host
	}
	if host == "" {
		host = noHost
	}
	u, err := url.Parse(action.Path)
	if err != nil {
		u = &url.URL{Path: action.Path}
	}
	u.Scheme = "http"
	if action.Scheme != "" {
		u.Scheme = strings.ToLower(string(action.Scheme))
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("create the request: %w", err)
	}
	for _, header := range action.HTTPHeaders {
		req.Header.Add(header.Name, header.Value)
	}
	if _, given := req.Header["User-Agent"]; !given {
		req.Header.Set("User-Agent", agent)
	}
	if accept, given := req.Header["Accept"]; !given {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept") // to be sent without the header
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

// dialAddress uses only the port of an address, so that redirections cannot leave the pod.
func (l *line) dialAddress(address string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	return l.connect(int(port))
}

func protocols(action *corev1.HTTPGetAction) *http.Protocols {
	p := new(http.Protocols)
	if action.Protocol != nil && *action.Protocol == corev1.HTTPProtocolHTTP2 {
		p.SetUnencryptedHTTP2(true)
		return p
	}
	p.SetHTTP1(true)
	p.SetHTTP2(true) // if TLS negotiates it
	return p
}

// sameHost follows redirections to other paths and ports of a host.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}
