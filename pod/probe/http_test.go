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

// echo responds with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\nHost: %s\n", r.Method, r.URL.RequestURI(), r.Proto, r.Host)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			fmt.Fprintf(w, "%s: %s\n", name, value)
		}
	}
}

// redirect redirects from / to the place.
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
		{name: "200", handler: answer(200, "ok body"), action: plain, want: probe.Success, has: "ok body"},
		{name: "201", handler: answer(201, ""), action: plain, want: probe.Success},
		{name: "204", handler: answer(204, ""), action: plain, want: probe.Success},
		{name: "299", handler: answer(299, ""), action: plain, want: probe.Success},
		{name: "300", handler: answer(300, "choose"), action: plain, want: probe.Warning,
			has: "Probe terminated redirects, Response body: choose"},
		{name: "304", handler: answer(304, ""), action: plain, want: probe.Warning, has: "Probe terminated redirects"},
		{name: "399", handler: answer(399, ""), action: plain, want: probe.Warning},
		{name: "400", handler: answer(400, "secret"), action: plain, want: probe.Failure, has: "HTTP probe failed with statuscode: 400",
			hasNot: "secret"},
		{name: "401", handler: answer(401, ""), action: plain, want: probe.Failure, has: "statuscode: 401"},
		{name: "404", handler: answer(404, ""), action: plain, want: probe.Failure, has: "statuscode: 404"},
		{name: "500", handler: answer(500, "secret"), action: plain, want: probe.Failure, has: "HTTP probe failed with statuscode: 500",
			hasNot: "secret"},
		{name: "503", handler: answer(503, ""), action: plain, want: probe.Failure, has: "statuscode: 503"},
		{name: "599", handler: answer(599, ""), action: plain, want: probe.Failure, has: "statuscode: 599"},

		{name: "headers of its own", handler: echo, action: plain, want: probe.Success,
			has: "Accept: */*\nConnection: close\nUser-Agent: kube-probe/1.", hasNot: "Accept-Encoding"},
		{name: "get", handler: echo, action: plain, want: probe.Success, has: "GET / HTTP/1.1\n"},
		{name: "path", handler: echo, action: &corev1.HTTPGetAction{Path: "/healthz"}, want: probe.Success, has: "GET /healthz "},
		{name: "path without slash", handler: echo, action: &corev1.HTTPGetAction{Path: "healthz"}, want: probe.Success, has: "GET /healthz "},
		{name: "no path", handler: echo, action: &corev1.HTTPGetAction{}, want: probe.Success, has: "GET / "},
		{name: "query", handler: echo, action: &corev1.HTTPGetAction{Path: "/h?a=b&c=d%20e"}, want: probe.Success, has: "GET /h?a=b&c=d%20e "},
		{name: "escapes", handler: echo, action: &corev1.HTTPGetAction{Path: "/a%20b"}, want: probe.Success, has: "GET /a%20b "},
		{name: "spaces", handler: echo, action: &corev1.HTTPGetAction{Path: "/a b"}, want: probe.Success, has: "GET /a%20b "},
		{name: "fragment", handler: echo, action: &corev1.HTTPGetAction{Path: "/a#b"}, want: probe.Success, has: "GET /a "},
		{name: "broken escape", handler: echo, action: &corev1.HTTPGetAction{Path: "/%zz"}, want: probe.Success, has: "GET /%25zz "},
		{name: "no other address in the path", handler: echo, action: &corev1.HTTPGetAction{Path: "http://example.com:1/x"},
			want: probe.Success, has: "GET /x ", hasNot: "example.com"},

		{name: "accept-encoding", handler: echo, action: headers("Accept-Encoding", "gzip"), want: probe.Success, has: "Accept-Encoding: gzip\n"},
		{name: "accept-encoding unknown", handler: echo, action: headers("Accept-Encoding", "foo"), want: probe.Success,
			has: "Accept-Encoding: foo\n"},
		{name: "accept-encoding empty", handler: echo, action: headers("Accept-Encoding", ""), want: probe.Success, has: "Accept-Encoding: \n"},
		{name: "one header more", handler: echo, action: headers("X-Muffins-Or-Cupcakes", "muffins"), want: probe.Success,
			has: "X-Muffins-Or-Cupcakes: muffins\n"},
		{name: "two of a name", handler: echo, action: headers("X-A", "1", "x-a", "2"), want: probe.Success, has: "X-A: 1\nX-A: 2\n"},
		{name: "user agent", handler: echo, action: headers("User-Agent", "foo/1.0"), want: probe.Success, has: "User-Agent: foo/1.0\n",
			hasNot: "kube-probe"},
		{name: "user agent, another case", handler: echo, action: headers("user-agent", "foo/1.0"), want: probe.Success,
			has: "User-Agent: foo/1.0\n", hasNot: "kube-probe"},
		{name: "no user agent", handler: echo, action: headers("User-Agent", ""), want: probe.Success, hasNot: "User-Agent"},
		{name: "accept", handler: echo, action: headers("User-Agent", "foo/1.0", "Accept", "text/html"), want: probe.Success,
			has: "Accept: text/html\n", hasNot: "*/*"},
		{name: "accept and another", handler: echo, action: headers("X-Muffins-Or-Cupcakes", "muffins", "Accept", "foo/*"),
			want: probe.Success, has: "X-Muffins-Or-Cupcakes: muffins\n", hasNot: "*/*"},
		{name: "no accept", handler: echo, action: headers("Accept", ""), want: probe.Success, has: "User-Agent: kube-probe/", hasNot: "Accept:"},
		{name: "host header", handler: echo, action: headers("Host", "muffins.cupcakes.org"), want: probe.Success,
			has: "Host: muffins.cupcakes.org\n", hasNot: "127.0.0.1"},
		{name: "host of the action", handler: echo, action: &corev1.HTTPGetAction{Path: "/", Host: "elsewhere.example"}, want: probe.Success,
			has: "Host: elsewhere.example:"},
		{name: "header with a line break", handler: echo, action: headers("X-A", "1\r\nX-B: 2"), want: probe.Failure,
			has: "invalid header field value"},

		{name: "301", handler: redirect(301, "/new", answer(200, "new")), action: plain, want: probe.Success, has: "new"},
		{name: "301, bad", handler: redirect(301, "/new", answer(500, "")), action: plain, want: probe.Failure, has: "statuscode: 500"},
		{name: "302", handler: redirect(302, "/new", answer(200, "new")), action: plain, want: probe.Success, has: "new"},
		{name: "302, bad", handler: redirect(302, "/new", answer(500, "")), action: plain, want: probe.Failure, has: "statuscode: 500"},
		{name: "303", handler: redirect(303, "/new", answer(200, "new")), action: plain, want: probe.Success, has: "new"},
		{name: "307", handler: redirect(307, "/new", answer(200, "new")), action: plain, want: probe.Success, has: "new"},
		{name: "307, bad", handler: redirect(307, "/new", answer(500, "")), action: plain, want: probe.Failure, has: "statuscode: 500"},
		{name: "308", handler: redirect(308, "/new", answer(200, "new")), action: plain, want: probe.Success, has: "new"},
		{name: "308, bad", handler: redirect(308, "/new", answer(500, "")), action: plain, want: probe.Failure, has: "statuscode: 500"},
		{name: "redirection without a place", handler: redirect(308, "/new", answer(308, "")), action: plain, want: probe.Warning,
			has: "Probe terminated redirects, Response body: "},
		{name: "redirection without a place, with a body", handler: redirect(308, "/new", answer(308, "ok body")), action: plain,
			want: probe.Warning, has: "Probe terminated redirects, Response body: ok body"},
		{name: "another port", handler: redirect(302, fmt.Sprintf("http://127.0.0.1:%d/success", aside), nil), action: plain,
			want: probe.Success, has: "from aside"},
		{name: "another port, bad", handler: redirect(302, fmt.Sprintf("http://127.0.0.1:%d/fail", asideBad), nil), action: plain,
			want: probe.Failure, has: "statuscode: 500"},
		{name: "another host", handler: redirect(302, "http://0.0.0.0/fail", nil), action: plain, want: probe.Warning,
			has: "Probe terminated redirects"},
		{name: "another host by name", handler: redirect(302, fmt.Sprintf("http://localhost:%d/", aside), nil), action: plain,
			want: probe.Warning, has: "Probe terminated redirects", hasNot: "aside"},
		{name: "the host header stays", handler: redirect(302, "/new", echo), action: headers("Host", "www.example.com"),
			want: probe.Success, has: "Host: www.example.com\n"},
		{name: "in a circle", handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) },
			action: plain, want: probe.Failure, has: "stopped after 10 redirects"},
		{name: "to another scheme", handler: redirect(302, "ftp://127.0.0.1/", nil), action: plain, want: probe.Failure,
			has: "unsupported protocol scheme"},
		{name: "to nonsense", handler: redirect(302, "http://[", nil), action: plain, want: probe.Failure,
			has: "failed to parse Location header"},
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

// TestHTTPSizes: a server cannot make a probe read an arbitrary amount.
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
	if got, body, err := probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/"}, endless, "127.0.0.1"); got != probe.Success ||
		len(body) != limit || err != nil {
		t.Errorf("an endless body: %v with %d, %v", got, len(body), err)
	}
	header := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Much", strings.Repeat("a", 1<<20))
	})
	if got, message, err := probe.HTTP(t.Context(), local, &corev1.HTTPGetAction{Path: "/"}, header, "127.0.0.1"); got != probe.Failure ||
		err != nil {
		t.Errorf("a header of 1 MiB: %v %.100q, %v", got, message, err)
	}
}

// TestHTTPSlow: a server that does not answer, or does not finish, fails.
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

// TestHTTPHangsUp: servers that do not speak HTTP fail.
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

// TestHTTPProtocols: TLS with an unknown certificate, and HTTP/2.
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
		{name: "https", tls: true, action: corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS}, want: probe.Success, has: "HTTP/1.1"},
		{name: "https with HTTP/2", tls: true, change: func(s *httptest.Server) { s.EnableHTTP2 = true },
			action: corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS}, want: probe.Success, has: "HTTP/2.0"},
		{name: "http to https", tls: true, action: corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTP}, want: probe.Failure,
			has: "statuscode: 400"},
		{name: "https to http", action: corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS}, want: probe.Failure,
			has: "server gave HTTP response to HTTPS client"},
		{name: "HTTP1", action: corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTP, Protocol: &one}, want: probe.Success, has: "HTTP/1.1"},
		{name: "HTTP2", change: h2c, action: corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTP, Protocol: &two}, want: probe.Success,
			has: "HTTP/2.0"},
		{name: "HTTP2 to HTTP1", action: corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTP, Protocol: &two}, want: probe.Failure},
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

// TestHTTPStaysInThePod: neither the environment's proxy nor a name redirects the connection.
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

// TestHTTPWithoutAddress: a pod without a network is probed under its loopback address.
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
