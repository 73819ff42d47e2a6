package bounds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// server answers after begins, and the answer takes ends.
type server struct{ begins, ends time.Duration }

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := wait(r.Context(), s.begins); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: &answer{r.Context(), s.ends}}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type answer struct {
	ctx  context.Context
	ends time.Duration
}

func (a *answer) Read([]byte) (int, error) {
	if err := wait(a.ctx, a.ends); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

func (a *answer) Close() error { return nil }

// TestBounds checks that a request without a complete answer fails after its deadline, and that a watch lasts as long
// as it requests.
func TestBounds(t *testing.T) {
	t.Parallel()
	const (
		never  = 1000 * time.Hour
		status = "/api/v1/namespaces/n/pods/p/status"
		leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
		watch  = "/api/v1/pods?watch=true&timeoutSeconds=300"
	)
	for name, tt := range map[string]struct {
		method, url  string
		begins, ends time.Duration
		took         time.Duration
		begun, whole bool // whether an answer begins, and whether it is complete
	}{
		"a patch":               {http.MethodPatch, status, time.Second, time.Second, 2 * time.Second, true, true},
		"a patch, unanswered":   {http.MethodPatch, status, never, 0, request, false, false},
		"a list, half answered": {http.MethodGet, "/api/v1/pods?limit=5", time.Second, never, request, true, false},
		"a lease, unanswered":   {http.MethodPut, leases + "/n", never, 0, lease, false, false},
		"a new lease":           {http.MethodPost, leases, never, 0, lease, false, false},
		"a watch":               {http.MethodGet, watch, time.Second, 5 * time.Minute, 301 * time.Second, true, true},
		"a watch, unanswered":   {http.MethodGet, watch, never, 0, request, false, false},
		"an endless watch":      {http.MethodGet, "/api/v1/pods?watch=1&timeoutSeconds=300", time.Second, never, 331 * time.Second, true, false},
		"a watch for ever":      {http.MethodGet, "/api/v1/pods?watch=true", time.Second, time.Hour, time.Hour + time.Second, true, true},
		"a list, by that name":  {http.MethodGet, "/api/v1/pods?watch=false&timeoutSeconds=300", never, 0, request, false, false},
		"a pod that is a lease": {http.MethodGet, "/api/v1/namespaces/n/pods/lease", never, 0, request, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := http.NewRequestWithContext(t.Context(), tt.method, "https://192.0.2.1"+tt.url, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				got, err := Wrap(server{tt.begins, tt.ends}).RoundTrip(r)
				if (err == nil) != tt.begun || err != nil && !errors.Is(err, ErrLate) {
					t.Fatalf("answered: %v", err)
				}
				if err == nil {
					_, err = io.ReadAll(got.Body)
					if (err == nil) != tt.whole {
						t.Errorf("read: %v", err)
					}
					if err := got.Body.Close(); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// TestBoundsOfTheCaller checks that the caller's own deadline is not reported as ErrLate.
func TestBoundsOfTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://192.0.2.1/api/v1/pods", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Wrap(server{begins: time.Hour}).RoundTrip(r) //nolint:bodyclose // there is no body
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrLate) {
			t.Errorf("error: %v", err)
		}
	})
}

// TestWatchAgain checks that the same objects are watched a few times at once, then at most twice a second. Other
// watches do not wait for them, and unused limits are dropped.
func TestWatchAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := Wrap(server{}).(*transport)
		watch := func(ctx context.Context, name string) error {
			url := "https://192.0.2.1/api/v1/pods?watch=true&fieldSelector=metadata.name%3D" + name
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			got, err := w.RoundTrip(r)
			if err == nil {
				err = got.Body.Close()
			}
			return err
		}
		began := time.Now()
		for range 30 {
			if err := watch(t.Context(), "one"); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("thirty watches took %v", took)
		}
		began = time.Now()
		for i := range 100 {
			if err := watch(t.Context(), fmt.Sprint("other", i)); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("watches of others took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := watch(ctx, "one"); err == nil {
			t.Error("a cancelled watch started")
		}
		time.Sleep(time.Minute)
		if err := watch(t.Context(), "one"); err != nil || len(w.watches.of) != 1 {
			t.Errorf("%d limits are kept, %v", len(w.watches.of), err)
		}
	})
}
