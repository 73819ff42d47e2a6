// Package local is the runtime inside the node's process: an engine of the instance "node", the CRI over it in process,
// and the streams of its containers.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	"github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/door/metrics"
	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/door/streams"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/pod/logs"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// Instance is the instance of the node's engine.
const Instance = dirs.Node

// Options configure a Runtime.
type Options struct {
	Roots dirs.Roots
	// Pods and Volumes are the directories of the pods and of their volumes' files.
	Pods, Volumes string
	// Engine are further options of the engine.
	Engine engine.Options
	Logger *slog.Logger
}

// Runtime is an engine with the services over it.
type Runtime struct {
	engine  *engine.Engine
	service *cri.Service
	streams streaming.Server
	metrics *metrics.Metrics
	network network.Kind
}

// Open opens the engine. If another process has the instance, the error matches flock.ErrLocked. The caller calls
// Close.
func Open(ctx context.Context, o Options) (*Runtime, error) {
	options := o.Engine
	options.Roots, options.Instance, options.Logger = o.Roots, Instance, o.Logger
	options.HostPaths = []string{o.Pods, o.Volumes}
	options.LogBytes = 2 * logs.Bound // room for output until the pod's log is rotated
	seen := metrics.New()
	options.Observer = seen
	e, err := engine.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: "node", Path: "/"}
	server, err := streaming.NewServer(config, streams.Runtime{Engine: e})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve streams: %w", err), e.Close(ctx))
	}
	s := cri.New(e, cri.Options{Roots: o.Roots, Volumes: layout.Dirs{Own: o.Volumes}, Logger: o.Logger})
	seen.AddEngine(e)
	r := &Runtime{engine: e, service: s, streams: server, metrics: seen, network: network.KindUser}
	if options.CNI != nil {
		r.network = network.KindCNI
	}
	return r, nil
}

// Metrics returns the metrics of the engine and of this process.
func (r *Runtime) Metrics() prometheus.Gatherer { return r.metrics.Gatherer() }

// Close closes the engine. Pods continue to run.
func (r *Runtime) Close(ctx context.Context) error { return r.engine.Close(ctx) }

// Backend returns the runtime for pods.
func (r *Runtime) Backend() runtime.Backend {
	return runtime.Backend{
		Runtime: r.service, Images: r.service, Dial: r.engine.DialPort, Pauses: r.engine.Pauses, Resume: r.engine.ResumePod,
		Allocatable: r.service.Allocatable, HeldMemory: r.heldMemory, HeldDisk: r.heldDisk, Usages: r.usages,
		Places: r.engine.Places(), Network: string(r.network),
	}
}

func (r *Runtime) heldMemory(sandbox string) (bytes int64, known bool) {
	m, err := r.engine.Meter(sandbox)
	if err != nil {
		return 0, false
	}
	return m.HeldMemory()
}

func (r *Runtime) heldDisk(sandbox string) int64 {
	m, err := r.engine.Meter(sandbox)
	if err != nil {
		return 0
	}
	return m.HeldDisk()
}

// usages returns the usage of the pods.
func (r *Runtime) usages(ctx context.Context) (all []usage.Pod, err error) {
	list, err := r.service.PodUsages(ctx, nil)
	for _, one := range list {
		p := usage.Pod{Stats: one.PodSandboxStats}
		for _, v := range one.Volumes {
			p.Volumes = append(p.Volumes, usage.Volume{
				Name: v.Name, Files: usage.Files{Bytes: v.Used, Inodes: v.Inodes}, Capacity: v.Capacity, Available: v.Available,
			})
		}
		all = append(all, p)
	}
	return all, err
}

// Exec connects an HTTP client with a command in a container.
func (r *Runtime) Exec(w http.ResponseWriter, req *http.Request, what *runtimeapi.ExecRequest) error {
	to, err := r.streams.GetExec(what)
	return r.serve(w, req, to.GetUrl(), err)
}

// Attach connects an HTTP client with a container.
func (r *Runtime) Attach(w http.ResponseWriter, req *http.Request, what *runtimeapi.AttachRequest) error {
	to, err := r.streams.GetAttach(what)
	return r.serve(w, req, to.GetUrl(), err)
}

// PortForward connects an HTTP client with ports of a pod.
func (r *Runtime) PortForward(w http.ResponseWriter, req *http.Request, what *runtimeapi.PortForwardRequest) error {
	to, err := r.streams.GetPortForward(what)
	return r.serve(w, req, to.GetUrl(), err)
}

// serve handles a request by the streaming library, as if the client had used the URL that the library returned.
func (r *Runtime) serve(w http.ResponseWriter, req *http.Request, to string, err error) error {
	if err != nil {
		return err
	}
	at, err := url.Parse(to)
	if err != nil {
		return fmt.Errorf("serve a stream: %w", err)
	}
	next := req.Clone(req.Context())
	next.URL.Path, next.URL.RawPath, next.RequestURI = at.Path, "", at.Path
	r.streams.ServeHTTP(w, next)
	return nil
}
