// Package templates answers the calls about VM templates.
package templates

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Service answers the calls.
type Service struct{ Engine *engine.Engine }

// Register adds the calls.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/templates", calls.Answered(s.list))
	mux.HandleFunc("POST /v1/templates", calls.With(s.build))
	mux.HandleFunc("DELETE /v1/templates/{key}", calls.Answered(s.remove))
}

func (s *Service) list(r *http.Request) (any, error) {
	all, err := s.Engine.Kinds().Templates(r.Context())
	if err != nil {
		return nil, err
	}
	list := []api.Template{}
	for _, t := range all {
		list = append(list, apiTemplate(t))
	}
	return list, nil
}

func apiTemplate(t kinds.Template) api.Template {
	return api.Template{
		Key: t.Key, Size: t.Bytes, Created: t.Built, VCPUs: t.VCPUs, Memory: t.MemoryMiB,
		Accel: t.Accel, Network: t.Network, Reason: t.Reason,
	}
}

func (s *Service) build(r *http.Request, req api.TemplateRequest) (any, error) {
	switch req.VCPUs {
	case 1, 2, 4, 8, 16, 32, 64:
	default:
		return nil, errclass.New(errdefs.ErrInvalidArgument, "%d virtual CPUs: must be 1, 2, 4, 8, 16, 32 or 64", req.VCPUs)
	}
	key, err := s.Engine.Kinds().Ensure(r.Context(), kinds.Request{VCPUs: req.VCPUs, Accel: req.Accel, Network: req.Network})
	if err != nil {
		return nil, err
	}
	info, err := s.find(r.Context(), key)
	return apiTemplate(info), err
}

func (s *Service) remove(r *http.Request) (any, error) {
	info, err := s.find(r.Context(), r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	return api.Result{}, s.Engine.Kinds().Remove(r.Context(), info.Key)
}

// find finds a template by an unambiguous prefix of its key.
func (s *Service) find(ctx context.Context, prefix string) (kinds.Template, error) {
	infos, err := s.Engine.Kinds().Templates(ctx)
	if err != nil {
		return kinds.Template{}, err
	}
	var found []kinds.Template
	for _, i := range infos {
		if strings.HasPrefix(i.Key, prefix) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return kinds.Template{}, fmt.Errorf("template %q: %w: bulkhead template ls lists them", prefix, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return kinds.Template{}, fmt.Errorf("template %q: %w: %d keys begin with it", prefix, errclass.ErrAmbiguous, len(found))
}

// Prune removes outdated templates, and with all also idle ones.
func (s *Service) Prune(ctx context.Context, all bool, p *api.Pruned) error {
	list, err := s.Engine.Kinds().Templates(ctx)
	if err != nil {
		return err
	}
	idle := s.idle(ctx)
	for _, t := range list {
		if !t.Old && (!all || !idle(t)) {
			continue
		}
		if err := s.Engine.Kinds().Remove(ctx, t.Key); err != nil {
			if err := p.Skip(ctx, err); err != nil {
				return err
			}
			continue
		}
		p.Templates = append(p.Templates, t.Key)
		p.Bytes += t.Bytes
	}
	return nil
}

// Share returns the disk usage of all templates.
func (s *Service) Share(ctx context.Context) (api.DiskShare, error) {
	share := api.DiskShare{Type: "Templates"}
	list, err := s.Engine.Kinds().Templates(ctx)
	idle := s.idle(ctx)
	for _, t := range list {
		share.Add(t.Bytes, !t.Old && !idle(t))
	}
	return share, err
}

// idle returns a function that reports whether no running pod was cloned from a template. Such templates
// are built again for the next pod of their kind.
func (s *Service) idle(ctx context.Context) func(kinds.Template) bool {
	used := map[string]bool{}
	for _, p := range s.Engine.Pods() {
		if facts, err := s.Engine.Facts(ctx, p.ID); err == nil && facts.State != "stopped" {
			used[facts.Template] = true
		}
	}
	return func(t kinds.Template) bool { return !used[t.Key] }
}
