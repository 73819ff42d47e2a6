package site

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
)

// restPatience bounds the wait for processes to come to rest.
const restPatience = 30 * time.Second

// AwaitIdle waits until the site's pods run, the preparations for the next pod are done, and all processes of the
// benchmark are at rest. After a timeout, note says what is not at rest. The error is ctx's.
func (s *Site) AwaitIdle(ctx context.Context) (note string, err error) {
	limit := restPatience
	if s.restless > 1 {
		limit /= 6 // it will hardly be better the next time
	}
	rest, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err = s.wake(rest); err == nil {
		err = procs.Rest(rest, s.complete)
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		s.restless++
		return "the host did not " + strings.ReplaceAll(err.Error(), context.DeadlineExceeded.Error(), "in "+limit.String()), nil
	}
	s.restless = 0
	return "", nil
}

// complete returns an error that says what is missing.
func (s *Site) complete(all []procs.Process) error {
	f := s.find(all)
	if got, want := len(f.pods), len(s.pods)+s.pool; got < want {
		return fmt.Errorf("%d of %d VMs are running", got, want)
	}
	if s.forks && len(f.parents) == 0 {
		return errors.New("there is no warm parent")
	}
	return nil
}

// Prime runs a pod of an image, so that the engine makes its preparations.
func (s *Site) Prime(ctx context.Context, image string) (err error) {
	if s.primer, err = s.Write("primer", Manifest("primer", image, "true")); err == nil {
		_, err = s.Run(ctx, "run", "--rm", "--quiet", s.primer)
	}
	return err
}

// wake runs a pod if there is no warm parent. A parent ends after some minutes without a fork, and a new pod makes
// the engine start another.
func (s *Site) wake(ctx context.Context) error {
	all, err := procs.Below(procs.Root())
	if err != nil || !s.forks || s.primer == "" || len(s.find(all).parents) > 0 {
		return err
	}
	if _, err = s.Run(ctx, "run", "--rm", "--quiet", s.primer); err != nil {
		return fmt.Errorf("come to rest: %w", err)
	}
	return nil
}
