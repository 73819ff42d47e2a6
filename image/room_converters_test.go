package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// TestConverters: no more converters run than memory allows, in all processes together, and a wait ends.
func TestConverters(t *testing.T) {
	dir := t.TempDir()
	here, there := newConverters(dir), newConverters(dir)
	here.most, there.most = 2, 2
	first, err := here.acquire(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := there.acquire(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*converterSlots{here, there} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := c.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third: %v", err)
		}
		cancel()
	}
	taken := make(chan func(), 1)
	go func() {
		done, err := here.acquire(testContext(t))
		if err != nil {
			t.Error(err)
		}
		taken <- done
	}()
	second()
	(<-taken)()
	first()
	if n := newConverters(dir).most; n < 1 || n > mostConverters {
		t.Errorf("%d at once on this host", n)
	}
}

// TestConverterMemory: the group of all converters is limited in memory. The error of a converter that was killed has
// the image, the reason and a remedy.
func TestConverterMemory(t *testing.T) {
	h := hostcgroup.Find(fmt.Sprintf("bulkhead-test-converters-%d", os.Getpid()))
	defer h.Tidy()
	if !h.Support().Has("memory") {
		t.Skipf("no cgroup with memory for this user: %s", h.Support().Missing)
	}
	const memory = 24 << 20
	s, _ := openStore(t, "run")
	s.converters.memory = memory
	var left atomic.Int32
	s.ConvertIn(func(ctx context.Context, bytes int64) (*hostcgroup.Group, func()) {
		g, err := h.Create("converters", hostcgroup.Limits{Memory: bytes})
		if err != nil {
			t.Error(err)
		}
		return g, func() {
			left.Add(1)
			if pids, err := g.PIDs(); err != nil || len(pids) > 0 && pids[0] != os.Getpid() { // its thread is about to end
				t.Errorf("in the group are still %v, %v", pids, err)
			}
			if err := g.Delete(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	many := make([]entry, 10_000)
	for i := range many {
		name := fmt.Sprint(i)
		many[i] = entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: strings.Repeat("x", 4000) + name}}
	}
	host := startRegistry(t, nil)
	push(t, host+"/many:1", imageOf(t, tarOf(t, many...)))
	push(t, host+"/few:1", imageOf(t, tarOf(t, many[:10]...)))
	_, err := s.Pull(testContext(t), host+"/many:1", PullOptions{})
	t.Log(err)
	if !errors.Is(err, ErrMemory) || left.Load() != 1 {
		t.Errorf("got %v, and the group was left %d times", err, left.Load())
	}
	for _, text := range []string{"pull " + host + "/many:1: ", "memory ran out", "24 MiB", "unpack fewer at once, or add memory"} {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%q lacks %q", err, text)
		}
	}
	noTemps(t, s)
	if _, err := s.Pull(testContext(t), host+"/few:1", PullOptions{}); err != nil || left.Load() != 2 {
		t.Errorf("a small one: %v, and the group was left %d times", err, left.Load())
	}
	if err := s.Save(testContext(t), host+"/few:1", filepath.Join(t.TempDir(), "few.tar"), "oci-archive"); err != nil || left.Load() != 4 {
		t.Errorf("save: %v, and the group was left %d times", err, left.Load())
	}
}

// TestLateLayers: a pull with slow layers keeps no other pull from the converter, and is converted when its layers
// arrived.
func TestLateLayers(t *testing.T) {
	slow, quick := imageOf(t, tarOf(t, file("f", "slow"))), imageOf(t, tarOf(t, file("f", "quick")))
	d := firstLayer(t, slow)
	asked, release := make(chan struct{}, 8), make(chan struct{})
	var hold atomic.Bool
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if hold.Load() && isBlob(r, d) {
				asked <- struct{}{}
				<-release
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/slow:1", slow)
	push(t, host+"/quick:1", quick)
	hold.Store(true)
	s, _ := openStore(t, "run")
	s.converters.most, s.converters.wait = 1, 100*time.Millisecond
	pulled := make(chan error, 1)
	go func() {
		got, err := s.Pull(testContext(t), host+"/slow:1", PullOptions{})
		if err == nil && read(t, s, got.ID, "f") != "slow" {
			err = errors.New("another file")
		}
		pulled <- err
	}()
	<-asked
	if _, err := s.Pull(testContext(t), host+"/quick:1", PullOptions{}); err != nil {
		t.Errorf("beside a slow registry: %v", err)
	}
	close(release)
	if err := <-pulled; err != nil {
		t.Error(err)
	}
	noTemps(t, s)
}
