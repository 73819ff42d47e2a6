// Package cri implements the CRI's runtime and image services in process, over an engine. It translates the CRI's
// configurations to the engine's requests and OCI specifications, and the engine's state to the CRI's. It has no state
// of its own: the engine keeps its records.
//
// Errors carry a gRPC status code (status.Code), also in process.
package cri

import (
	"context"
	"log/slog"

	"github.com/opencontainers/runtime-spec/specs-go"
	internalapi "k8s.io/cri-api/pkg/apis"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/cri/cdi"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// Options configure a service.
type Options struct {
	Roots dirs.Roots
	// Volumes are the directories where clients' mounts are recognised as volumes.
	Volumes layout.Dirs
	// Handlers are additional runtime handlers by name, which may replace built-in ones.
	Handlers map[string]Handler
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Adjust, if not nil, changes the specification of each new container, except its mounts. undo is called if the
	// container is not created afterwards.
	Adjust func(ctx context.Context, m Making, spec *specs.Spec) (undo func(), err error)
}

// Service implements the CRI's interfaces. It is safe for concurrent use.
type Service struct {
	imageService
	engine   *engine.Engine
	volumes  layout.Dirs
	handlers handlers
	cdi      []string // directories of devices' specifications
	adjust   func(ctx context.Context, m Making, spec *specs.Spec) (undo func(), err error)
	log      *slog.Logger
	records  records
}

var (
	_ internalapi.RuntimeService      = (*Service)(nil)
	_ internalapi.ImageManagerService = (*Service)(nil)
	_ runtimev1.Runtime               = (*Service)(nil)
)

// New returns a service for the pods of an engine. The engine's owner closes the engine.
func New(e *engine.Engine, o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Service{
		imageService: imageService{e.Images(), o.Roots}, engine: e, volumes: o.Volumes, handlers: withBuiltIn(o.Handlers),
		cdi: cdi.Dirs, adjust: o.Adjust, log: o.Logger, records: records{log: o.Logger},
	}
}

// Close does nothing: the engine's owner closes it.
func (s *Service) Close(context.Context) error { return nil }
