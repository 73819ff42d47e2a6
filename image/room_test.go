package image

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// roomsOf returns rooms of a file system with so much free space.
func roomsOf(free int64) *rooms {
	r := newRooms("")
	r.free = func() (int64, error) { return free, nil }
	return r
}

// none fails the test if a promise or a turn is left.
func (r *rooms) none(t *testing.T) {
	t.Helper()
	if r.promised != 0 || r.promises != 0 || len(r.turn) != 0 {
		t.Errorf("%d bytes in %d promises are left, and %d turns", r.promised, r.promises, len(r.turn))
	}
}

// TestPromises: all promises together leave the reserve, with any number of callers.
func TestPromises(t *testing.T) {
	r, ctx := roomsOf(reserve+100), testContext(t)
	first, firstErr := r.reserve(ctx, 60)
	second, secondErr := r.reserve(ctx, 40)
	if err := errors.Join(firstErr, secondErr); err != nil || first.bytes != 60 || second.bytes != 40 {
		t.Fatalf("%d, %d, %v", first.bytes, second.bytes, err)
	}
	got := make(chan promise, 3)
	for range 3 {
		go func() {
			p, err := r.reserve(ctx, 70)
			if err != nil {
				t.Error(err)
			}
			got <- p
		}()
	}
	for len(r.turn) == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	second.end()
	second.end() // counts once
	for len(r.ended) > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if len(got) != 0 {
		t.Fatal("70 bytes are promised beside 60 of 100")
	}
	first.end()
	for range 3 {
		p := <-got
		if p.bytes != 70 || r.promised != 70 {
			t.Errorf("%d bytes, of %d", p.bytes, r.promised)
		}
		p.end()
	}
	r.none(t)
}

// TestPromisesOfLittle: a single pull gets all the space there is, and a waiting one can leave.
func TestPromisesOfLittle(t *testing.T) {
	ctx := testContext(t)
	for _, free := range []int64{0, reserve - 1, reserve, reserve + 10} {
		r := roomsOf(free)
		p, err := r.reserve(ctx, 20)
		if want := max(0, free-reserve); err != nil || p.bytes != want {
			t.Errorf("%d bytes are free: %d, %v", free, p.bytes, err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := r.reserve(ended, 20); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting with a context that has ended: %v", err)
		}
		if _, err := r.reserveAll(ended, 20); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting for all, with a context that has ended: %v", err)
		}
		p.end()
		all, err := r.reserveAll(ctx, 20)
		if err != nil || all.bytes != p.bytes {
			t.Errorf("after who left: %d, %v", all.bytes, err)
		}
		if _, err := r.reserve(ended, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting for who has all, with a context that has ended: %v", err)
		}
		all.end()
		r.none(t)
	}
	r := newRooms(filepath.Join(t.TempDir(), "missing"))
	for range 2 { // an error does not lose the turn
		_, err := r.reserve(ctx, 1)
		_, allErr := r.reserveAll(ctx, 1)
		if !errors.Is(err, os.ErrNotExist) || !errors.Is(allErr, os.ErrNotExist) {
			t.Errorf("a directory that is missing: %v, %v", err, allErr)
		}
	}
}

// TestAllRoom: a pull that turns out to be large gets all space, alone, once.
func TestAllRoom(t *testing.T) {
	r, ctx := roomsOf(reserve+1000), testContext(t)
	other, err := r.reserve(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	var limits []int64
	next := make(chan promise)
	err = r.spend(ctx, 100, func(limit int64) error {
		if limits = append(limits, limit); len(limits) == 1 {
			other.end()
			return fmt.Errorf("%w: more", ErrNoSpace)
		}
		go func() {
			p, err := r.reserve(ctx, 10)
			if err != nil || len(limits) != 2 {
				t.Errorf("another pull has %d bytes, %v", p.bytes, err)
			}
			next <- p
		}()
		if r.promises != 1 {
			t.Errorf("%d promises", r.promises)
		}
		return nil
	})
	if err != nil || fmt.Sprint(limits) != "[100 1000]" {
		t.Errorf("limits %d, %v", limits, err)
	}
	(<-next).end()
	for _, tc := range []struct {
		want int64
		err  error
		says string
	}{{2000, ErrNoSpace, "[1000]"}, {1000, ErrNoSpace, "[1000]"}, {999, ErrNoSpace, "[999 1000]"}, {10, ErrInvalid, "[10]"}} {
		limits = nil
		err = r.spend(ctx, tc.want, func(limit int64) error { limits = append(limits, limit); return tc.err })
		if !errors.Is(err, tc.err) || fmt.Sprint(limits) != tc.says {
			t.Errorf("of %d bytes: limits %d, %v", tc.want, limits, err)
		}
	}
	r.none(t)
}

// TestLargeDisk: a disk that is far larger than its layers suggest is made as well, after the other pulls.
func TestLargeDisk(t *testing.T) {
	host := startRegistry(t, nil)
	large := tarOf(t, file("f", strings.Repeat("compresses well ", diskBase/10)))
	push(t, host+"/large:1", imageOf(t, tarOf(t, file("a", "small")), large))
	s, _ := openStore(t, "run")
	other, err := s.rooms.reserve(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	pulled := make(chan error, 1)
	go func() {
		_, err := s.Pull(testContext(t), host+"/large:1", PullOptions{})
		pulled <- err
	}()
	for !s.rooms.wanted() {
		select {
		case err := <-pulled:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	other.end()
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	img, err := s.Resolve(host + "/large:1")
	if err != nil || !strings.HasPrefix(read(t, s, img.ID, "f"), "compresses") || read(t, s, img.ID, "a") != "small" {
		t.Error(err)
	}
	noTemps(t, s)
	s.rooms.none(t)
}

// wanted reports whether a pull waits for the only other promise to end.
func (r *rooms) wanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.turn) == 1 && r.promises == 1
}

// TestPullsLeaveTheReserve: concurrent pulls that would each fit do not use the reserve together.
func TestPullsLeaveTheReserve(t *testing.T) {
	s, base := smallStore(t)
	host := startRegistry(t, nil)
	const pulls = 4 // each takes 3 MiB, and 3 more until it is done, of 16
	noise := rand.NewChaCha8([32]byte{})
	for i := range pulls {
		body := make([]byte, 3<<20)
		_, _ = noise.Read(body)
		push(t, fmt.Sprintf("%s/demo:%d", host, i), imageOf(t, tarOf(t, file("f", string(body)))))
	}
	least := watchFree(t, base, func() {
		var all sync.WaitGroup
		for i := range pulls {
			all.Go(func() {
				if _, err := s.Pull(testContext(t), fmt.Sprintf("%s/demo:%d", host, i), PullOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
	if least < reserve {
		t.Errorf("%d KiB were left, of %d", least>>10, int64(reserve)>>10)
	}
	noTemps(t, s)
}
