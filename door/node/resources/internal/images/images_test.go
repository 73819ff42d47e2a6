package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/host"
)

// minAge is the minimum age of images in the tests.
const minAge = 2 * time.Minute

// store is a runtime with images on a disk of 1000 bytes, some of them used by other files.
type store struct {
	internalapi.ImageManagerService
	mu     sync.Mutex // guards the fields below
	images []*runtimeapi.Image
	uses   []string
	others uint64
	fails  string // an image that cannot be removed
	err    error  // of ListContainers
	warned []string
}

func (s *store) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*runtimeapi.Image(nil), s.images...), nil
}

// runtime is the store's CRI runtime.
type runtime struct {
	internalapi.RuntimeService
	s *store
}

func (r runtime) ListContainers(context.Context, *runtimeapi.ContainerFilter) (out []*runtimeapi.Container, err error) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.uses {
		out = append(out, &runtimeapi.Container{ImageId: id})
	}
	return out, s.err
}

func (s *store) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec.GetImage() == s.fails {
		return errors.New("it stays")
	}
	for i, image := range s.images {
		if image.GetId() == spec.GetImage() {
			s.images = append(s.images[:i:i], s.images[i+1:]...)
		}
	}
	return nil
}

func (s *store) disk() (host.Disk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.others
	for _, image := range s.images {
		used += image.GetSize()
	}
	return host.Disk{Total: 1000, Available: 1000 - used}, nil
}

func (s *store) add(id string, size uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = append(s.images, &runtimeapi.Image{Id: id, Size: size, RepoTags: []string{id + ":1"}})
}

// set changes the store while a Keeper runs.
func (s *store) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *store) left() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, image := range s.images {
		out = append(out, image.GetId())
	}
	return strings.Join(out, " ")
}

func (s *store) keeper() *Collector {
	return New(Options{Images: s, Runtime: runtime{s: s}, Disk: s.disk, High: 85, Low: 80, MinAge: minAge, Warn: func(reason, message string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.warned = append(s.warned, reason+": "+message)
	}})
}

// TestCollect checks that images are removed from the upper to the lower bound, the least recently used first. Used,
// pinned and new images stay.
func TestCollect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		for _, id := range []string{"a", "b", "c", "d", "pinned"} {
			s.add(id, 100)
		}
		s.images[4].Pinned = true
		s.uses = []string{"a", "c:1"}
		k := s.keeper()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { k.Run(ctx); close(ended) }()
		time.Sleep(6 * time.Minute)
		s.set(func() { s.uses = []string{"c"} }) // a was used after b and d
		step := func(others uint64, want string) {
			t.Helper()
			s.set(func() { s.others = others })
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if got := s.left(); got != want {
				t.Errorf("with %d bytes of other files: %s, want %s", others, got, want)
			}
		}
		step(340, "a b c d pinned") // 84 %
		s.add("new", 50)
		step(300, "a c d pinned new") // 85 %, b goes
		s.set(func() { s.fails = "d" })
		step(440, "c d pinned new") // 89 %: d cannot be removed, so a is
		s.set(func() { s.fails = "" })
		if len(s.warned) > 0 {
			t.Errorf("warned: %v", s.warned)
		}
		step(640, "c pinned") // all that can be removed
		if len(s.warned) == 0 || !strings.HasPrefix(s.warned[0], "FreeDiskSpaceFailed: ") {
			t.Errorf("warned: %v", s.warned)
		}
		cancel()
		<-ended
	})
}

// TestNew checks that new images are never removed, and that no image is removed while the used ones are unknown.
func TestNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		s.add("a", 10)
		k := s.keeper()
		if err := k.Reclaim(t.Context()); err != nil || s.left() != "a" {
			t.Errorf("immediately: %s, %v", s.left(), err)
		}
		time.Sleep(minAge)
		s.err = errors.New("not now")
		if err := k.Reclaim(t.Context()); !errors.Is(err, s.err) || s.left() != "a" {
			t.Errorf("without a list of containers: %s, %v", s.left(), err)
		}
		s.err = nil
		if err := k.Reclaim(t.Context()); err != nil || s.left() != "" {
			t.Errorf("later: %s, %v", s.left(), err)
		}
	})
}

// TestLargest checks that the largest images are listed, with a limited number of names.
func TestLargest(t *testing.T) {
	t.Parallel()
	s := &store{}
	for i := range 60 {
		s.add(fmt.Sprintf("i%d", i), uint64(i))
	}
	s.images[59].RepoDigests = []string{"1@", "2@", "3@", "4@", "5@", "6@"}
	s.images[58].RepoTags = nil
	got, err := s.keeper().Largest(t.Context())
	if err != nil || len(got) != 49 || len(got[0].Names) != 5 || got[0].SizeBytes != 59 || got[1].SizeBytes != 57 {
		t.Errorf("%d images, %v: %+v", len(got), err, got[:2])
	}
}
