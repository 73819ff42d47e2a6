// Package prune removes the things that no pod uses, and sums up the disk usage.
package prune

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/images"
	"github.com/bulkhead-project/bulkhead/door/run/templates"
	"github.com/bulkhead-project/bulkhead/door/run/volumes"
	"github.com/bulkhead-project/bulkhead/internal/diskusage"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// Service answers the calls.
type Service struct {
	Pods      *manager.Manager
	Data      string // the data directory of the user
	Images    *images.Service
	Templates *templates.Service
	Volumes   *volumes.Service
}

// Register adds the calls.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/system/df", calls.Answered(s.diskUsage))
	mux.HandleFunc("POST /v1/system/prune", calls.Answered(s.prune))
}

// prune removes ended pods, unused images, outdated templates, and with all also every idle template.
func (s *Service) prune(r *http.Request) (any, error) {
	p := api.Pruned{}
	for _, e := range s.Pods.All() {
		if !e.HasEnded() {
			continue
		}
		size := s.podSize(e)
		if err := e.Remove(r.Context(), false); err != nil {
			if err := p.Skip(r.Context(), err); err != nil {
				return nil, err
			}
			continue
		}
		p.Pods = append(p.Pods, e.Key())
		p.Bytes += size
	}
	all := r.URL.Query().Get("all") == "true"
	if err := s.Images.Prune(r.Context(), all, &p); err != nil {
		return nil, err
	}
	if r.URL.Query().Get("volumes") == "true" {
		if err := s.Volumes.Prune(r.Context(), &p); err != nil {
			return nil, err
		}
	}
	err := s.Templates.Prune(r.Context(), all, &p)
	return p, err
}

// diskUsage sums up the disk usage, and the part that prune would free.
func (s *Service) diskUsage(r *http.Request) (any, error) {
	pods := api.DiskShare{Type: "Pods"}
	for _, e := range s.Pods.All() {
		pods.Add(s.podSize(e), !e.HasEnded())
	}
	shares := []api.DiskShare{pods}
	for _, part := range []func(context.Context) (api.DiskShare, error){s.Images.Share, s.Templates.Share, s.Volumes.Share} {
		share, err := part(r.Context())
		if err != nil {
			return nil, err
		}
		shares = append(shares, share)
	}
	return shares, nil
}

// podSize returns the disk usage of a pod: its record, logs and scratch disk.
func (s *Service) podSize(e *manager.Pod) int64 {
	size := diskusage.Of(e.Dir())
	if id := e.Sandbox(); id != "" {
		size += diskusage.Of(filepath.Join(s.Data, "sandboxes", id))
	}
	return size
}
