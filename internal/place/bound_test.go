package place

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
)

// TestSilent: a file system that does not answer delays its callers only until their deadline, and delays no callers
// for other paths. Repeated calls for it are refused at once.
func TestSilent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	silent := testfs.Silent(t, filepath.Join(dir, "dead"))
	path := filepath.Join(silent.Dir, "x")
	for range mostAbandoned {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, ErrSilent)
		_, err := Rules{}.Open(ctx, path, OpenOptions{Missing: MakeDir})
		cancel()
		if !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), path) {
			t.Error(err)
		}
	}
	began := time.Now()
	if _, err := (Rules{}).Open(t.Context(), path, OpenOptions{}); !errors.Is(err, ErrSilent) || time.Since(began) > patience/2 {
		t.Errorf("once more: %v after %v", err, time.Since(began))
	}
	p, err := Rules{}.Open(t.Context(), dir, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	silent.End()
	// Its calls end with it.
	ctx := testdeadline.Context(t, 10*time.Second)
	for {
		left.mu.Lock()
		n := left.paths[path]
		left.mu.Unlock()
		if n == nil {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("calls are left: %+v", n)
		}
	}
}

// TestGivenUp: a place that is opened for an abandoned call is closed.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	a := abandoned{paths: map[string]*turns{}}
	f, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer, answered := make(chan struct{}), make(chan struct{})
	_, err = a.bound(ctx, "p", func() (*Place, error) {
		defer close(answered)
		<-answer
		return &Place{File: f}, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(answer)
	<-answered
	ctx = testdeadline.Context(t, 10*time.Second)
	for {
		if _, err := f.Stat(); errors.Is(err, os.ErrClosed) {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatal("it is open still")
		}
	}
}

// TestSilentAtOnce: of many concurrent calls for a path that does not answer, no more wait in the kernel than of
// sequential ones. All calls for a path that answers succeed.
func TestSilentAtOnce(t *testing.T) {
	t.Parallel()
	a := abandoned{paths: map[string]*turns{}}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, ErrSilent)
	defer cancel()
	var asked sync.WaitGroup
	var calls atomic.Int32
	answer := make(chan struct{})
	for range 10 * mostAbandoned {
		asked.Go(func() {
			_, err := a.bound(ctx, "p", func() (*Place, error) {
				calls.Add(1)
				<-answer
				return nil, nil
			})
			if !errors.Is(err, ErrSilent) {
				t.Error(err)
			}
		})
	}
	asked.Wait()
	if n := calls.Load(); n > mostAbandoned {
		t.Errorf("%d calls, at most %d", n, mostAbandoned)
	}
	close(answer)
	for range 10 * mostAbandoned {
		asked.Go(func() {
			if _, err := a.bound(t.Context(), "q", func() (*Place, error) { return nil, nil }); err != nil {
				t.Error(err)
			}
		})
	}
	asked.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.paths["q"] != nil {
		t.Errorf("left: %+v", a.paths["q"])
	}
}
