package cri

import (
	"context"
	"errors"
	"fmt"

	internalapi "k8s.io/cri-api/pkg/apis"
)

// Service is an engine. Its methods may be called at once.
type Service struct {
	internalapi.RuntimeService
	internalapi.ImageManagerService
}

// New makes the engine of an instance and adopts the pods that an earlier one
// left. There must be one engine an instance at a time; a second is refused.
func New(ctx context.Context, o Options) (*Service, error) {
	return nil, errors.ErrUnsupported
}

// Close ends the pool and lets go of the pods, which run on. It returns when
// no goroutine of the engine runs any more.
func (s *Service) Close(ctx context.Context) error { return nil }

// Reaped counts what a reap did.
type Reaped struct {
	Adopted int      // pods whose shim had died and that have a new one
	Removed int      // half-made and leftover sandboxes
	Failed  []string // what could not be undone, to be tried again
}

// Reap adopts pods without a shim and undoes what crashes left, of this
// engine's instance only. New does it as well.
func (s *Service) Reap(ctx context.Context) (Reaped, error) { return Reaped{}, nil }

func (s *Service) PausePodSandbox(ctx context.Context, id string) error    { return nil }
func (s *Service) ResumePodSandbox(ctx context.Context, id string) error   { return nil }
func (s *Service) PodFacts(ctx context.Context, id string) (*Facts, error) { return nil, nil }
func (s *Service) Console(ctx context.Context, id string) (string, error)  { return "", nil }

func (e *ExitError) Error() string   { return fmt.Sprintf("command ended with exit code %d", e.Code) }
func (e *ExitError) String() string  { return e.Error() }
func (e *ExitError) Exited() bool    { return true }
func (e *ExitError) ExitStatus() int { return e.Code }
