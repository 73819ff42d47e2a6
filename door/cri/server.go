// Package cri is the door for kubelets. It serves the CRI over gRPC on a unix socket, and the streams of exec, attach
// and port-forward over HTTP on loopback. Its engine has an instance of its own, so the door lists and removes only its
// own pods. The pods outlive it.
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

// Instance is the instance of the door's engine.
const Instance = dirs.CRI

// Options configures the door. Roots, Socket and Logger are required.
type Options struct {
	Roots dirs.Roots
	// Socket is the path of the unix socket. Run creates its directory.
	Socket string
	// Kubelet is the kubelet's root directory. Volumes of pods are recognised by paths in it.
	Kubelet string
	// Logs are the directories that may contain pods' log directories. Run creates missing ones.
	Logs []string
	// Handlers are runtime handlers by name. They add to the built-in ones or replace them.
	Handlers map[string]service.Handler
	// Metrics is the listen address of the metrics server, or "".
	Metrics string
	// Traces is the OTLP/HTTP URL for spans, or "".
	Traces string
	// NRI locates the node's plugins. If it is nil, the door uses none. Its Logger is ignored.
	NRI *nri.Options
	// Engine has further options of the engine. The door sets Roots, Instance, HostPaths, Observer and Logger.
	Engine engine.Options
	Logger *slog.Logger
}

// endTimeout bounds the wait for running calls when the door closes. The engine finishes a cut-off call as far as
// possible.
const endTimeout = 5 * time.Second

// maxMessage bounds a message in each direction, like the kubelet's limit.
const maxMessage = 16 << 20

// Run serves until ctx ends, and calls ready once the socket is served. Pods keep running afterwards. The error matches
// flock.ErrLocked if another process serves the instance.
func Run(ctx context.Context, o Options, ready func()) (err error) {
	seen := observer{metrics: metrics.New(), log: o.Logger}
	if seen.tracer, err = tracing.New(ctx, o.Traces, o.Logger); err != nil {
		return fmt.Errorf("cri: %w", err)
	}
	defer func() {
		if err := seen.tracer.Close(ctx); err != nil {
			o.Logger.Warn("cannot send the last traces", "error", err)
		}
	}()
	o.Engine.Observer = seen.metrics
	e, err := open(ctx, o)
	if err != nil {
		return fmt.Errorf("cri: %w", err)
	}
	seen.facts = e.Facts
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	seen.metrics.AddEngine(e)
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

// services returns the engine's service and, if NRI is enabled, the plugins that intercept its calls. The caller must
// call end.
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

// serve runs all servers until ctx or one of them ends.
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
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) { // ErrServerStopped: ctx ended before it served
		errs[len(all)+1] = fmt.Errorf("cri: serve: %w", err)
	}
	return errors.Join(errs...)
}
