package auth

import (
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestCacheLifetimes checks the lifetime of cached answers, also when the clock jumps ahead.
func TestCacheLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviewer()
		h := New(r, "node", func() *x509.CertPool { return nil })
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		req.Header.Set("Authorization", "Bearer good")
		who := func() {
			if _, err := h.Authenticate(req); err != nil {
				t.Error(err)
			}
		}
		bad := req.Clone(t.Context())
		bad.Header.Set("Authorization", "Bearer bad")
		refused := func() {
			if _, err := h.Authenticate(bad); !errors.Is(err, ErrUnknown) {
				t.Error(err)
			}
		}
		may := func(sub string) func() {
			return func() {
				if allowed, err := h.Authorize(t.Context(), &User{Name: "alice"}, "get", sub); err != nil || allowed != (sub == "metrics") {
					t.Errorf("%s: %v, %v", sub, allowed, err)
				}
			}
		}
		for name, tt := range map[string]struct {
			ask   func()
			holds time.Duration
		}{
			"a token":        {who, tokenFor},
			"refused token":  {refused, refusedFor},
			"allowed access": {may("metrics"), allowedFor},
			"denied access":  {may("stats"), deniedFor},
		} {
			for _, step := range []struct {
				after time.Duration
				asked int
			}{{0, 1}, {tt.holds - time.Second, 0}, {2 * time.Second, 1}, {24 * time.Hour, 1}} {
				time.Sleep(step.after)
				before := r.asked
				tt.ask()
				if got := r.asked - before; got != step.asked {
					t.Errorf("%s after %s more: %d requests, want %d", name, step.after, got, step.asked)
				}
			}
		}
	})
}
