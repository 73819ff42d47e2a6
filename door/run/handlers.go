package run

import (
	"net/http"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/images"
	"github.com/bulkhead-project/bulkhead/door/run/jsonpath"
	"github.com/bulkhead-project/bulkhead/door/run/manifest"
	"github.com/bulkhead-project/bulkhead/door/run/prune"
	"github.com/bulkhead-project/bulkhead/door/run/streams"
	"github.com/bulkhead-project/bulkhead/door/run/templates"
	"github.com/bulkhead-project/bulkhead/door/run/view"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// handler serves the calls of package api.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	parts := &prune.Service{
		Pods: s.pods, Data: s.roots.Data, Templates: &templates.Service{Engine: s.engine}, Volumes: s.volumes,
		Images: &images.Service{
			Store: s.images, Environment: s.ownEnvironment, Pods: s.pods,
			Of: func(p *manager.Pod, name string) *image.Store { return entryOf(p).images(name) },
		},
	}
	parts.Register(mux)
	parts.Images.Register(mux)
	parts.Templates.Register(mux)
	parts.Volumes.Register(mux)
	(&view.Service{Engine: s.engine, Pods: s.pods, Log: s.log, Ending: s.ending}).Register(mux)
	(&streams.Service{Engine: s.engine, Pods: s.pods}).Register(mux)
	mux.HandleFunc("POST /v1/pods", calls.Streamed(s.run))
	mux.HandleFunc("POST /v1/names", calls.With(names))
	mux.HandleFunc("POST /v1/pods/{ref}/debug", calls.Answered(s.debug))
	mux.HandleFunc("POST /v1/pods/{ref}/{verb}", calls.Answered(s.verb))
	mux.HandleFunc("DELETE /v1/pods/{ref}", calls.Answered(s.remove))
	mux.HandleFunc("POST /v1/jsonpath", calls.With(evaluate))
	mux.HandleFunc("POST /v1/reap", calls.Answered(s.reap))
	mux.HandleFunc("GET /v1/version", calls.Answered(s.version))
	mux.HandleFunc("POST /v1/shutdown", calls.Answered(func(*http.Request) (any, error) {
		s.stop()
		return api.Result{}, nil
	}))
	return mux
}

// names returns the names of the pods in documents. It ignores objects that only a cluster supports.
func names(_ *http.Request, req api.NamesRequest) (any, error) {
	found, err := manifest.Read(req.Manifests, podapi.Options{IgnoreUnsupported: true})
	if err != nil {
		return nil, err
	}
	names := api.Names{Pods: []string{}}
	for _, p := range found.Pods {
		names.Pods = append(names.Pods, p.Namespace+"/"+p.Name)
	}
	return names, nil
}

// evaluate fills in a JSONPath template like kubectl. It runs in the engine, so that the command line needs no
// library for it.
func evaluate(_ *http.Request, req api.JSONPathRequest) (any, error) {
	fill := jsonpath.Fill
	if req.Rows {
		fill = jsonpath.Rows
	}
	text, err := fill(req.Template, req.Value)
	return api.JSONPathResult{Text: text}, err
}
