package run

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

func (s *server) listTemplates(r *http.Request) (any, error) {
	all, err := s.engine.Templates(r.Context())
	if err != nil {
		return nil, err
	}
	list := []api.Template{}
	for _, t := range all {
		list = append(list, apiTemplate(t))
	}
	return list, nil
}

func apiTemplate(t engine.Template) api.Template {
	return api.Template{
		Key: t.Key, Size: t.Bytes, Created: t.Built, VCPUs: t.VCPUs, Memory: t.MemoryMiB,
		Accel: t.Accel, Network: t.Network, Reason: t.Reason,
	}
}

func (s *server) buildTemplate(r *http.Request) (any, error) {
	req, err := decode[api.TemplateRequest](r)
	if err != nil {
		return nil, err
	}
	switch req.VCPUs {
	case 1, 2, 4, 8, 16, 32, 64:
	default:
		return nil, errclass.New(errdefs.ErrInvalidArgument, "%d virtual CPUs: must be 1, 2, 4, 8, 16, 32 or 64", req.VCPUs)
	}
	key, err := s.engine.EnsureTemplate(r.Context(), engine.TemplateRequest{VCPUs: req.VCPUs, Accel: req.Accel, Network: req.Network})
	if err != nil {
		return nil, err
	}
	info, err := s.findTemplate(r.Context(), key)
	return apiTemplate(info), err
}

func (s *server) removeTemplate(r *http.Request) (any, error) {
	info, err := s.findTemplate(r.Context(), r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	return api.Result{}, s.engine.RemoveTemplate(r.Context(), info.Key)
}

// findTemplate finds a template by an unambiguous prefix of its key.
func (s *server) findTemplate(ctx context.Context, prefix string) (engine.Template, error) {
	infos, err := s.engine.Templates(ctx)
	if err != nil {
		return engine.Template{}, err
	}
	var found []engine.Template
	for _, i := range infos {
		if strings.HasPrefix(i.Key, prefix) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return engine.Template{}, fmt.Errorf("template %q: %w: bulkhead template ls lists them", prefix, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return engine.Template{}, fmt.Errorf("template %q: %w: %d keys begin with it", prefix, errclass.ErrAmbiguous, len(found))
}
