package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/door/node/server/internal/conns"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestServer checks that no client can keep an idle connection for ever, and that streams have no deadline.
func TestServer(t *testing.T) {
	t.Parallel()
	s := server(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if s.MaxHeaderBytes <= 0 || s.MaxHeaderBytes > 64<<10 {
		t.Errorf("limit of a request header: %d bytes", s.MaxHeaderBytes)
	}
	if s.ReadHeaderTimeout <= 0 || s.IdleTimeout <= 0 || s.ReadTimeout != 0 || s.WriteTimeout != 0 {
		t.Errorf("timeouts: header %s, idle %s, read %s, write %s", s.ReadHeaderTimeout, s.IdleTimeout, s.ReadTimeout, s.WriteTimeout)
	}
}

// TestAnonymousConnections checks that connections without a request cannot lock out a known client, whether they come
// from one address or many.
func TestAnonymousConnections(t *testing.T) {
	t.Parallel()
	for _, sources := range []int{1, 16} {
		t.Run(fmt.Sprint(sources, " sources"), func(t *testing.T) {
			t.Parallel()
			ctx := testdeadline.Context(t, 20*time.Second)
			address := serveGuarded(ctx, t)
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: from(200).DialContext,
			}}
			ask(ctx, t, client, address) // the client keeps its connection
			for i := range 1024 {
				conn, err := from(2+i%sources).DialContext(ctx, "tcp", address)
				if err != nil {
					t.Fatalf("connection %d: %v", i, err)
				}
				t.Cleanup(func() { conn.Close() })
			}
			ask(ctx, t, client, address)
			client.CloseIdleConnections()
			ask(ctx, t, client, address)
		})
	}
}

// serveGuarded serves an API that accepts the token "right", and returns its address.
func serveGuarded(ctx context.Context, t *testing.T) string {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	config := &tls.Config{Certificates: certified.TLS.Certificates}
	certified.Close()
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer right" {
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := conns.New(connLimits)
	s := guarded(gate, guard, api, config, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- s.ServeTLS(gate.Listen(l), "", "") }()
	t.Cleanup(func() {
		s.Close()
		<-ended
	})
	return l.Addr().String()
}

// from returns a dialer that uses one of the loopback addresses.
func from(n int) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}}
}

func ask(ctx context.Context, t *testing.T, client *http.Client, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer right")
	res, err := client.Do(req)
	if err != nil {
		t.Fatalf("a known client is locked out: %v", err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "ok" {
		t.Errorf("%s %q: %v", res.Status, body, err)
	}
}
