package life

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdle: the time starts with the release after the engine's start, and after the last request.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var ended []time.Duration
		i, release := NewIdle(time.Minute, func() { ended = append(ended, time.Since(began)) })
		time.Sleep(2 * time.Minute) // the engine starts
		release()
		time.Sleep(59 * time.Second)
		done := i.Hold()
		time.Sleep(time.Hour)
		done()
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := 2*time.Minute + 59*time.Second + time.Hour + time.Minute; len(ended) != 1 || ended[0] != want {
			t.Errorf("ended after %v, not %v", ended, want)
		}
	})
}

// TestExpireBesideRequest: a request that came after the timer fired keeps the engine alive.
func TestExpireBesideRequest(t *testing.T) {
	ended := 0
	i, release := NewIdle(time.Hour, func() { ended++ })
	defer i.Stop()
	release()
	done := i.Hold()
	i.expire()
	if ended != 0 {
		t.Error("the engine ended during a request")
	}
	done()
	i.expire()
	if ended != 1 {
		t.Errorf("ended %d times", ended)
	}
	// From now on, only the next engine may handle requests.
	s := httptest.NewServer(i.Count(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request is handled by an engine that ends")
	})))
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, io.EOF) { // the engine's client interprets it as an engine that is gone
		t.Errorf("the client sees %v", err)
	}
}

// TestUnused: a connection without a request does not delay the end of a server.
func TestUnused(t *testing.T) {
	var u Unused
	accepted := make(chan struct{}, 1)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		u.State(c, state)
		accepted <- struct{}{}
	}
	s.Start()
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-accepted
	u.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // Shutdown alone waits five seconds
	defer cancel()
	go func() {
		for range accepted { // the end of that connection
		}
	}()
	if err := s.Config.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
