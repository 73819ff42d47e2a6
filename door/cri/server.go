// Package cri is the door of kubelets: the services of the CRI, by gRPC on a unix
// socket, and beside them a server of streams on loopback, for exec, attach and
// port-forward. It has an engine of its own instance, and so lists and removes only its
// own pods, which outlive it.
package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	service "github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/door/cri/nri"
	"github.com/bulkhead-project/bulkhead/door/cri/tracing"
	"github.com/bulkhead-project/bulkhead/door/metrics"
	"github.com/bulkhead-project/bulkhead/door/run/socket"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// Instance is that of the door's engine.
const Instance = dirs.CRI

// Options say whom the door serves. Roots, Socket and Logger are required.
type Options struct {
	Roots dirs.Roots
	// Socket is the path of the unix socket; its directory is made.
	Socket string
	// Kubelet is the root directory of the kubelet, in which its volumes are recognised.
	Kubelet string
	// Logs are the directories below which log directories of pods may lie. Missing ones
	// are made.
	Logs []string
	// Handlers are runtime handlers beside the built-in ones, or in their place, by name.
	Handlers map[string]service.Handler
	// Metrics is the address of the server of metrics; empty is none.
	Metrics string
	// Traces is the URL that spans are sent to, by OTLP over HTTP; empty is nowhere.
	Traces string
	// NRI says where a node's plugins are; nil is that none are asked. Its Logger is the door's.
	NRI *nri.Options
	// Engine is what else the engine is opened with; Roots, Instance, HostPaths, Observer and
	// Logger are set by the door.
	Engine engine.Options
	Logger *slog.Logger
}

// endTimeout bounds the end of calls under way when the door is closed. A call that it
// cuts off goes on in the engine, as far as that lets it.
const endTimeout = 5 * time.Second

// maxMessage bounds a message in each direction, as the kubelet does.
const maxMessage = 16 << 20

// Run serves until ctx ends, and calls ready when the socket is served. Pods live on.
// Where another process serves the instance, the error matches flock.ErrLocked.
func Run(ctx context.Context, o Options, ready func()) (err error) {
	seen := observer{metrics: metrics.New(), log: o.Logger}
	if seen.tracer, err = tracing.New(ctx, o.Traces, o.Logger); err != nil {
		return fmt.Errorf("cri: %w", err)
	}
	defer func() {
		if err := seen.tracer.Close(ctx); err != nil {
			o.Logger.Warn("end the traces", "error", err)
		}
	}()
	o.Engine.Observer = seen.metrics
	e, err := open(ctx, o)
	if err != nil {
		return fmt.Errorf("cri: %w", err)
	}
	seen.facts = e.Facts
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	seen.metrics.Of(e)
	streams, err := newStreams(ctx, e)
	if err != nil {
		return fmt.Errorf("cri: %w", err)
	}
	all := webs{streams.web}
	if o.Metrics != "" {
		w, err := listenWeb(ctx, "metrics", o.Metrics)
		if err != nil {
			return fmt.Errorf("cri: %w", errors.Join(err, all.close()))
		}
		w.server.Handler = seen.metrics.Handler()
		all = append(all, w)
	}
	l, err := socket.Listen(ctx, o.Socket)
	if err != nil {
		return fmt.Errorf("cri: serve: %w", errors.Join(err, all.close()))
	}
	srv := grpc.NewServer(append(seen.tracer.ServerOptions(),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(seen.unary), grpc.StreamInterceptor(seen.stream),
	)...)
	s, calls, end, err := services(ctx, e, o)
	if err != nil {
		return fmt.Errorf("cri: %w", errors.Join(err, l.Close(), all.close()))
	}
	defer end()
	runtimeapi.RegisterRuntimeServiceServer(srv, &runtimeServer{s: s, calls: calls, streams: streams})
	runtimeapi.RegisterImageServiceServer(srv, &imageServer{s: s})
	return serve(ctx, srv, all, l, ready)
}

// services makes the service of an engine, with the node's plugins before it where they are
// asked for. The caller calls end.
func services(ctx context.Context, e *engine.Engine, o Options) (s *service.Service, c calls, end func(), err error) {
	options := service.Options{
		Roots: o.Roots, Volumes: layout.Dirs{Kubelet: o.Kubelet}, Handlers: o.Handlers, Logger: o.Logger,
	}
	if o.NRI == nil {
		s = service.New(e, options)
		return s, s, func() {}, nil
	}
	where := *o.NRI
	where.Logger = o.Logger
	plugins, err := nri.New(where)
	if err != nil {
		return nil, nil, nil, err
	}
	options.Adjust = plugins.Adjust
	s = service.New(e, options)
	return s, plugins, plugins.Close, plugins.Start(ctx, s)
}

// open opens the engine.
func open(ctx context.Context, o Options) (*engine.Engine, error) {
	allowed := o.Logs
	if o.Kubelet != "" {
		allowed = append([]string{o.Kubelet}, allowed...)
	}
	for _, dir := range append([]string{filepath.Dir(o.Socket)}, allowed...) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	options := o.Engine
	options.Roots, options.Instance, options.HostPaths, options.Logger = o.Roots, Instance, allowed, o.Logger
	return engine.Open(ctx, options)
}

// serve serves all servers until ctx ends, or one of them.
func serve(ctx context.Context, srv *grpc.Server, all webs, l net.Listener, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, len(all)+2)
	for i, w := range all {
		wg.Go(func() {
			defer cancel()
			errs[i] = w.serve()
		})
	}
	wg.Go(func() {
		<-ctx.Done()
		errs[len(all)] = all.close()
		late := time.AfterFunc(endTimeout, srv.Stop)
		defer late.Stop()
		srv.GracefulStop()
	})
	ready()
	err := srv.Serve(l)
	cancel()
	wg.Wait()
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) { // the end came before it served
		errs[len(all)+1] = fmt.Errorf("cri: serve: %w", err)
	}
	return errors.Join(errs...)
}
