package probe_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// local dials the servers of these tests.
var local = probe.To("127.0.0.1")

// serveHTTP serves until the test ends and returns the port.
func serveHTTP(t *testing.T, handler http.HandlerFunc) int {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

func answer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\nHost: %s\n", r.Method, r.URL.RequestURI(), r.Proto, r.Host)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			fmt.Fprintf(w, "%s: %s\n", name, value)
		}
	}
}

// redirect leads from / to the place.
func redirect(code int, place string, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, place, code)
			return
		}
		then(w, r)
	}
}

func headers(pairs ...string) *corev1.HTTPGetAction {
	action := &corev1.HTTPGetAction{Path: "/"}
	for i := 0; i < len(pairs); i += 2 {
		action.HTTPHeaders = append(action.HTTPHeaders, corev1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
	}
	return action
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	plain := &corev1.HTTPGetAction{Path: "/"}
	aside := serveHTTP(t, answer(200, "from aside"))
	asideBad := serveHTTP(t, answer(500, ""))
	tests := []struct {
		name    string
		handler http.HandlerFunc
		action  *corev1.HTTPGetAction
		want    probe.Result
		has     string // of the message
		hasNot  string
	}{
		{"200", answer(200, "ok body"), plain, probe.Success, "ok body", ""},
		{"201", answer(201, ""), plain, probe.Success, "", ""},
		{"204", answer(204, ""), plain, probe.Success, "", ""},
		{"299", answer(299, ""), plain, probe.Success, "", ""},
		{"300", answer(300, "choose"), plain, probe.Warning, "Probe terminated redirects, Response body: choose", ""},
		{"304", answer(304, ""), plain, probe.Warning, "Probe terminated redirects", ""},
		{"399", answer(399, ""), plain, probe.Warning, "", ""},
		{"400", answer(400, "secret"), plain, probe.Failure, "HTTP probe failed with statuscode: 400", "secret"},
		{"401", answer(401, ""), plain, probe.Failure, "statuscode: 401", ""},
		{"404", answer(404, ""), plain, probe.Failure, "statuscode: 404", ""},
		{"500", answer(500, "secret"), plain, probe.Failure, "HTTP probe failed with statuscode: 500", "secret"},
		{"503", answer(503, ""), plain, probe.Failure, "statuscode: 503", ""},
		{"599", answer(599, ""), plain, probe.Failure, "statuscode: 599", ""},

		{"headers of its own", echo, plain, probe.Success, "Accept: */*\nConnection: close\nUser-Agent: kube-probe/1.", "Accept-Encoding"},
		{"get", echo, plain, probe.Success, "GET / HTTP/1.1\n", ""},
		{"path", echo, &corev1.HTTPGetAction{Path: "/healthz"}, probe.Success, "GET /healthz ", ""},
		{"path without slash", echo, &corev1.HTTPGetAction{Path: "healthz"}, probe.Success, "GET /healthz ", ""},
		{"no path", echo, &corev1.HTTPGetAction{}, probe.Success, "GET / ", ""},
		{"query", echo, &corev1.HTTPGetAction{Path: "/h?a=b&c=d%20e"}, probe.Success, "GET /h?a=b&c=d%20e ", ""},
		{"escapes", echo, &corev1.HTTPGetAction{Path: "/a%20b"}, probe.Success, "GET /a%20b ", ""},
		{"spaces", echo, &corev1.HTTPGetAction{Path: "/a b"}, probe.Success, "GET /a%20b ", ""},
		{"fragment", echo, &corev1.HTTPGetAction{Path: "/a#b"}, probe.Success, "GET /a ", ""},
		{"broken escape", echo, &corev1.HTTPGetAction{Path: "/%zz"}, probe.Success, "GET /%25zz ", ""},
		{"no other address in the path", echo, &corev1.HTTPGetAction{Path: "http://example.com:1/x"}, probe.Success, "GET /x ", "example.com"},

		{"accept-encoding", echo, headers("Accept-Encoding", "gzip"), probe.Success, "Accept-Encoding: gzip\n", ""},
		{"accept-encoding unknown", echo, headers("Accept-Encoding", "foo"), probe.Success, "Accept-Encoding: foo\n", ""},
		{"accept-encoding empty", echo, headers("Accept-Encoding", ""), probe.Success, "Accept-Encoding: \n", ""},
		{"one header more", echo, headers("X-Muffins-Or-Cupcakes", "muffins"), probe.Success, "X-Muffins-Or-Cupcakes: muffins\n", ""},
		{"two of a name", echo, headers("X-A", "1", "x-a", "2"), probe.Success, "X-A: 1\nX-A: 2\n", ""},
		{"user agent", echo, headers("User-Agent", "foo/1.0"), probe.Success, "User-Agent: foo/1.0\n", "kube-probe"},
		{"user agent, another case", echo, headers("user-agent", "foo/1.0"), probe.Success, "User-Agent: foo/1.0\n", "kube-probe"},
		{"no user agent", echo, headers("User-Agent", ""), probe.Success, "", "User-Agent"},
		{"accept", echo, headers("User-Agent", "foo/1.0", "Accept", "text/html"), probe.Success, "Accept: text/html\n", "*/*"},
		{"accept and another", echo, headers("X-Muffins-Or-Cupcakes", "muffins", "Accept", "foo/*"), probe.Success, "X-Muffins-Or-Cupcakes: muffins\n", "*/*"},
		{"no accept", echo, headers("Accept", ""), probe.Success, "User-Agent: kube-probe/", "Accept:"},
		{"host header", echo, headers("Host", "muffins.cupcakes.org"), probe.Success, "Host: muffins.cupcakes.org\n", "127.0.0.1"},
		{"host of the action", echo, &corev1.HTTPGetAction{Path: "/", Host: "elsewhere.example"}, probe.Success, "Host: elsewhere.example:", ""},
		{"header with a line break", echo, headers("X-A", "1\r\nX-B: 2"), probe.Failure, "invalid header field value", ""},

		{"301", redirect(301, "/new", answer(200, "new")), plain, probe.Success, "new", ""},
		{"301, bad", redirect(301, "/new", answer(500, "")), plain, probe.Failure, "statuscode: 500", ""},
		{"302", redirect(302, "/new", answer(200, "new")), plain, probe.Success, "new", ""},
		{"302, bad", redirect(302, "/new", answer(500, "")), plain, probe.Failure, "statuscode: 500", ""},
		{"303", redirect(303, "/new", answer(200, "new")), plain, probe.Success, "new", ""},
		{"307", redirect(307, "/new", answer(200, "new")), plain, probe.Success, "new", ""},
		{"307, bad", redirect(307, "/new", answer(500, "")), plain, probe.Failure, "statuscode: 500", ""},
		{"308", redirect(308, "/new", answer(200, "new")), plain, probe.Success, "new", ""},
		{"308, bad", redirect(308, "/new", answer(500, "")), plain, probe.Failure, "statuscode: 500", ""},
		{"redirection without a place", redirect(308, "/new", answer(308, "")), plain, probe.Warning, "Probe terminated redirects, Response body: ", ""},
		{"redirection without a place, with a body", redirect(308, "/new", answer(308, "ok body")), plain, probe.Warning, "Probe terminated redirects, Response body: ok body", ""},
		{"another port", redirect(302, fmt.Sprintf("http://127.0.0.1:%d/success", aside), nil), plain, probe.Success, "from aside", ""},
		{"another port, bad", redirect(302, fmt.Sprintf("http://127.0.0.1:%d/fail", asideBad), nil), plain, probe.Failure, "statuscode: 500", ""},
		{"another host", redirect(302, "http://0.0.0.0/fail", nil), plain, probe.Warning, "Probe terminated redirects", ""},
		{"another host by name", redirect(302, fmt.Sprintf("http://localhost:%d/", aside), nil), plain, probe.Warning, "Probe terminated redirects", "aside"},
		{"the host header stays", redirect(302, "/new", echo), headers("Host", "www.example.com"), probe.Success, "Host: www.example.com\n", ""},
		{"in a circle", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, plain, probe.Failure, "stopped after 10 redirects", ""},
		{"to another scheme", redirect(302, "ftp://127.0.0.1/", nil), plain, probe.Failure, "unsupported protocol scheme", ""},
		{"to nonsense", redirect(302, "http://[", nil), plain, probe.Failure, "failed to parse Location header", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			port := serveHTTP(t, test.handler)
			got, message, err := probe.HTTP(t.Context(), local, test.action, port, "127.0.0.1")
			if err != nil || got != test.want {
				t.Errorf("%v, want %v: %q, %v", got, test.want, message, err)
			}
			if !strings.Contains(message, test.has) || test.hasNot != "" && strings.Contains(message, test.hasNot) {
				t.Errorf("message %q, want %q and not %q", message, test.has, test.hasNot)
			}
		})
	}
}

// TestHTTPSizes: an answer's size is nothing that the server decides on.
func TestHTTPSizes(t *testing.T) {
	t.Parallel()
	const limit = 10 << 10
	for _, size := range []int{0, limit - 1, limit, limit + 1, 10 * limit} {
		port := serveHTTP(t, answer(200, strings.Repeat("a", size)))
		got, body, err := probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/"}, port, "127.0.0.1")
		if err != nil || got != probe.Success || len(body) != min(size, limit) {
			t.Errorf("a body of %d bytes: %v with %d, %v", size, got, len(body), err)
		}
	}
	endless := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, limit)); err != nil {
				return
			}
		}
	})
	if got, body, err := probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/"}, endless, "127.0.0.1"); got != probe.Success || len(body) != limit || err != nil {
		t.Errorf("an endless body: %v with %d, %v", got, len(body), err)
	}
	header := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Much", strings.Repeat("a", 1<<20))
	})
	if got, message, err := probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/"}, header, "127.0.0.1"); got != probe.Failure || err != nil {
		t.Errorf("a header of 1 MiB: %v %.100q, %v", got, message, err)
	}
}

// TestHTTPSlow: a server that does not answer, or not to the end, fails.
func TestHTTPSlow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	for name, handler := range map[string]http.HandlerFunc{
		"never answers": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-release:
			}
		},
		"stops within": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-release:
			}
		},
	} {
		port := serveHTTP(t, handler)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		got, message, err := probe.HTTP(ctx, local, &corev1.HTTPGetAction{Path: "/"}, port, "127.0.0.1")
		cancel()
		if got != probe.Failure || err != nil || !strings.Contains(message, "deadline exceeded") || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %v %q, %v after %v", name, got, message, err, time.Since(began))
		}
	}
	close(release)
}

// TestHTTPHangsUp: servers that speak no HTTP fail.
func TestHTTPHangsUp(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]string{
		"nothing":   "",
		"no http":   "220 mail.example.com ESMTP\r\n",
		"half":      "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"no status": "HTTP/1.1 \r\n\r\n",
		"code -1":   "HTTP/1.1 -1 odd\r\n\r\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 4096))
			fmt.Fprint(conn, say)
		}()
		got, message, err := probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/"}, l.Addr().(*net.TCPAddr).Port, "127.0.0.1")
		if got != probe.Failure || err != nil || message == "" {
			t.Errorf("%s: %v %q, %v", name, got, message, err)
		}
		l.Close()
		<-served
	}
}

// TestHTTPProtocols: TLS with a certificate that nobody knows, and HTTP/2.
func TestHTTPProtocols(t *testing.T) {
	t.Parallel()
	h2c := func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	two, one := corev1.HTTPProtocolHTTP2, corev1.HTTPProtocolHTTP1
	tests := []struct {
		name   string
		tls    bool
		change func(*httptest.Server)
		action corev1.HTTPGetAction
		want   probe.Result
		has    string
	}{
		{"https", true, nil, corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS}, probe.Success, "HTTP/1.1"},
		{"https with HTTP/2", true, func(s *httptest.Server) { s.EnableHTTP2 = true }, corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS}, probe.Success, "HTTP/2.0"},
		{"http to https", true, nil, corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTP}, probe.Failure, "statuscode: 400"},
		{"https to http", false, nil, corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS}, probe.Failure, "server gave HTTP response to HTTPS client"},
		{"HTTP1", false, nil, corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTP, Protocol: &one}, probe.Success, "HTTP/1.1"},
		{"HTTP2", false, h2c, corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTP, Protocol: &two}, probe.Success, "HTTP/2.0"},
		{"HTTP2 to HTTP1", false, nil, corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTP, Protocol: &two}, probe.Failure, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(echo))
			if test.change != nil {
				test.change(server)
			}
			if test.tls {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			got, message, err := probe.HTTP(ctx, local, &test.action, server.Listener.Addr().(*net.TCPAddr).Port, "127.0.0.1")
			if got != test.want || err != nil || !strings.Contains(message, test.has) {
				t.Errorf("%v %q, %v", got, message, err)
			}
		})
	}
}

// TestHTTPStaysInThePod: neither the environment's proxy nor a name leads the
// connection elsewhere.
func TestHTTPStaysInThePod(t *testing.T) {
	proxy := serveHTTP(t, answer(200, "the proxy"))
	for _, name := range []string{"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:"+strconv.Itoa(proxy))
	}
	for _, name := range []string{"no_proxy", "NO_PROXY"} {
		t.Setenv(name, "")
	}
	port := serveHTTP(t, answer(200, "the pod"))
	got, message, err := probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/", Host: "example.com"}, port, "10.0.2.15")
	if got != probe.Success || message != "the pod" || err != nil {
		t.Errorf("%v %q, %v", got, message, err)
	}
}

// TestHTTPWithoutAddress: a pod without a network is asked by its loopback's name.
func TestHTTPWithoutAddress(t *testing.T) {
	t.Parallel()
	port := serveHTTP(t, echo)
	_, message, err := probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/"}, port, "")
	if err != nil || !strings.Contains(message, fmt.Sprintf("Host: 127.0.0.1:%d\n", port)) {
		t.Errorf("%q, %v", message, err)
	}
	_, message, err = probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/"}, port, "fd00::1")
	if err != nil || !strings.Contains(message, fmt.Sprintf("Host: [fd00::1]:%d\n", port)) {
		t.Errorf("%q, %v", message, err)
	}
}
