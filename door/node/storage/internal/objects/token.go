package objects

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/tokens"
	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/volume"
)

var _ volume.Tokens = (*view)(nil)

// token is one token of a pod. Its fields are guarded by the cache's lock.
type token struct {
	source  corev1.ServiceAccountTokenProjection // without its path
	asking  chan struct{}                        // closed when the running request has ended; nil if none runs
	last    tokens.Token
	failure error // of the last request
	pauses  retry.Pauses
	timer   *time.Timer // of the next request; nil before the first
}

// tokenPauses are the pauses after a failed request. The first is also the pause after an unusable token.
var tokenPauses = retry.Pauses{First: 5 * time.Second, Last: time.Minute}

// tokenTimeout bounds a request.
const tokenTimeout = 30 * time.Second

// Token implements volume.Tokens. It returns the last token while that is valid, and requests the next one in the
// background.
func (v *view) Token(ctx context.Context, source *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	v.c.mu.Lock()
	t := v.tokenOf(source)
	if time.Now().Before(t.last.Refresh) {
		defer v.c.mu.Unlock()
		return t.last.Text, nil
	}
	asking := v.ask(t)
	v.c.mu.Unlock()
	if !retry.Sleep(ctx, patience, asking) {
		return nil, ctx.Err()
	}
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	switch {
	case time.Now().Before(t.last.Expires):
		return t.last.Text, nil
	case t.failure != nil:
		return nil, t.failure
	}
	return nil, fmt.Errorf("the API server has not issued a token yet")
}

// tokenOf returns the token for a source. It is called with the cache's lock held.
func (v *view) tokenOf(source *corev1.ServiceAccountTokenProjection) *token {
	want := corev1.ServiceAccountTokenProjection{Audience: source.Audience, ExpirationSeconds: source.ExpirationSeconds}
	for _, t := range v.tokens {
		same := t.source.ExpirationSeconds == want.ExpirationSeconds || t.source.ExpirationSeconds != nil &&
			want.ExpirationSeconds != nil && *t.source.ExpirationSeconds == *want.ExpirationSeconds
		if t.source.Audience == want.Audience && same {
			return t
		}
	}
	t := &token{source: want, pauses: tokenPauses}
	v.tokens = append(v.tokens, t)
	return t
}

// ask requests a token in the background unless a request is running. It is called with the cache's lock held.
func (v *view) ask(t *token) <-chan struct{} {
	if t.asking != nil || v.c.ctx.Err() != nil {
		return t.asking
	}
	done := make(chan struct{})
	t.asking = done
	v.c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(v.c.ctx, tokenTimeout)
		defer cancel()
		next, err := tokens.Request(ctx, v.c.o.Client, v.pod, &t.source)
		v.c.mu.Lock()
		defer v.c.mu.Unlock()
		t.asking, t.failure = nil, err
		wait := t.pauses.Next()
		if err == nil {
			t.pauses.Reset()
			t.last, wait = next, max(time.Until(next.Refresh), t.pauses.First)
		}
		close(done)
		if v.c.views[v.uid] != v {
			return
		}
		if err == nil {
			v.notify() // volumes that wait for the token are written
		}
		v.schedule(t, wait)
	})
	return done
}

// schedule requests the token again after a while. It is called with the cache's lock held.
func (v *view) schedule(t *token, wait time.Duration) {
	if t.timer != nil {
		t.timer.Stop()
	}
	var mine *time.Timer
	mine = time.AfterFunc(wait, func() {
		v.c.mu.Lock()
		defer v.c.mu.Unlock()
		// A timer that was stopped too late has a successor, because the token was requested meanwhile.
		if t.timer == mine && v.c.views[v.uid] == v {
			v.ask(t)
		}
	})
	t.timer = mine
}
