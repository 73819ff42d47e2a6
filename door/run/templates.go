package run

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/network"
)

func (s *server) listTemplates(*http.Request) (any, error) {
	infos, err := s.templates.List()
	if err != nil {
		return nil, err
	}
	list := []api.Template{}
	for _, i := range infos {
		list = append(list, apiTemplate(i))
	}
	return list, nil
}

func apiTemplate(i template.Info) api.Template {
	// An error's text: "find template KEY: no template: none has been built yet".
	reason := strings.TrimPrefix(strings.TrimPrefix(i.Reason, "find template "+i.Key+": "), template.ErrMiss.Error()+": ")
	return api.Template{
		Key: i.Key, Size: i.Disk, Created: i.Built, VCPUs: i.Machine.VCPUs, Memory: i.Machine.Memory,
		Accel: string(i.Machine.Accel), Network: string(i.Machine.Network), Reason: reason,
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
		return nil, errclass.With(api.ErrInvalid, fmt.Errorf("%d virtual CPUs: machines have 1, 2, 4, 8, 16, 32 or 64", req.VCPUs))
	}
	key, err := s.engine.EnsureTemplate(r.Context(), req.VCPUs, hypervisor.Accel(req.Accel), network.Kind(req.Network))
	if err != nil {
		return nil, err
	}
	info, err := s.findTemplate(key)
	return apiTemplate(info), err
}

func (s *server) removeTemplate(r *http.Request) (any, error) {
	info, err := s.findTemplate(r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	return api.Result{}, s.dropTemplate(r.Context(), info.Key)
}

// templateWait bounds the wait for a template that somebody builds.
const templateWait = 2 * time.Minute

func (s *server) dropTemplate(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, templateWait)
	defer cancel()
	return s.templates.Remove(ctx, key)
}

// findTemplate names a template by an unambiguous prefix of its key.
func (s *server) findTemplate(prefix string) (template.Info, error) {
	infos, err := s.templates.List()
	if err != nil {
		return template.Info{}, err
	}
	var found []template.Info
	for _, i := range infos {
		if strings.HasPrefix(i.Key, prefix) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return template.Info{}, fmt.Errorf("template %q: %w: bulkhead template ls lists them", prefix, api.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return template.Info{}, fmt.Errorf("template %q: %w: %d begin so", prefix, api.ErrAmbiguous, len(found))
}
