package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
)

type noPods struct{}

func (noPods) Find(string, string) *manager.Pod               { return nil }
func (noPods) Pods() []*manager.Pod                           { return nil }
func (noPods) Status(types.UID) (s corev1.PodStatus, ok bool) { return s, false }

// TestRoutes checks the status code of each route, and that other routes are refused.
func TestRoutes(t *testing.T) {
	t.Parallel()
	h := New(noPods{}, nil, nil, slog.New(slog.DiscardHandler)).Handler()
	for request, code := range map[string]int{
		"GET /healthz": 200, "GET /pods": 200, "GET /pods/": 200, "GET /runningpods/": 200, "GET /containerLogs/n/p/c": 404,
		"GET /containerLogs/n/p/c?tailLines=x": 400, "POST /exec/n/p/c": 404, "GET /exec/n/p/u/c": 404, "GET /attach/n/p/c": 404,
		"POST /portForward/n/p": 404, "GET /portForward/n/p/u": 404, "DELETE /pods": 405, "GET /run/n/p/c": 404, "GET /": 404,
		"GET /containerLogs/n/../../etc/passwd": 404,
	} {
		var method, path string
		if _, err := fmt.Sscan(request, &method, &path); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), method, path, http.NoBody))
		if w.Code != code && w.Code != http.StatusTemporaryRedirect && w.Code != http.StatusMovedPermanently {
			t.Errorf("%s: %d, want %d", request, w.Code, code)
		}
	}
}

// TestParseLogs checks that each parameter of the API is parsed and invalid values are refused.
func TestParseLogs(t *testing.T) {
	t.Parallel()
	q, err := url.ParseQuery("follow=true&previous=true&timestamps=true&tailLines=7&limitBytes=100" +
		"&sinceTime=2026-01-02T03:04:05Z&stream=Stderr")
	if err != nil {
		t.Fatal(err)
	}
	o, err := parseLogs(q)
	if err != nil || !o.Follow || !o.Previous || !o.timestamps || o.Tail != 7 || o.limit != 100 || o.stream != "stderr" ||
		!o.Since.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseLogs(url.Values{}); err != nil || o.Tail != -1 || o.limit != -1 || o.stream != "" || !o.Since.IsZero() {
		t.Errorf("empty query: %+v, %v", o, err)
	}
	if o, err = parseLogs(url.Values{"sinceSeconds": {"60"}}); err != nil || time.Since(o.Since) < time.Minute {
		t.Errorf("sinceSeconds: %+v, %v", o, err)
	}
	for _, bad := range []string{"tailLines=-1", "tailLines=x", "limitBytes=0", "sinceSeconds=0", "sinceTime=now", "stream=all"} {
		q, _ := url.ParseQuery(bad)
		if _, err := parseLogs(q); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// TestLines checks timestamps, the choice of a stream, and the limit.
func TestLines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	all := []logs.Line{
		{Stream: "stdout", Time: at, Data: []byte("first ")}, {Stream: "stdout", Time: at, Data: []byte("half\n")},
		{Stream: "stderr", Time: at, Data: []byte("second\n")},
	}
	const stamp = "2026-01-02T03:04:05.000000006Z "
	for name, tt := range map[string]struct {
		o    logOptions
		want string
		err  error
	}{
		"plain":  {logOptions{limit: -1}, "first half\nsecond\n", nil},
		"times":  {logOptions{limit: -1, timestamps: true}, stamp + "first half\n" + stamp + "second\n", nil},
		"stream": {logOptions{limit: -1, stream: "stderr"}, "second\n", nil},
		"limit":  {logOptions{limit: 13}, "first half\nse", errEnough},
		"follow": {logOptions{limit: -1, OutputOptions: manager.OutputOptions{Follow: true}}, "first half\nsecond\n", nil},
	} {
		w := httptest.NewRecorder()
		out := &lines{w: w, o: tt.o}
		var err error
		for _, one := range all {
			if err == nil {
				err = out.line(one)
			}
		}
		if w.Body.String() != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v, want %q", name, w.Body, err, tt.want)
		}
	}
}
