// Package server serves a kubelet's HTTP API: pods, logs, streams, statistics and metrics. The packages below do the
// work. This one connects them.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/pods"
	"github.com/bulkhead-project/bulkhead/door/node/registration/certs"
	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/server/internal/api"
	"github.com/bulkhead-project/bulkhead/door/node/server/internal/auth"
	"github.com/bulkhead-project/bulkhead/door/node/server/internal/conns"
	"github.com/bulkhead-project/bulkhead/door/node/server/internal/series"
	"github.com/bulkhead-project/bulkhead/door/node/server/internal/stats"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
)

// Options configure a Server. All but Cert are required; Serving and Client are nil without an API server.
type Options struct {
	// Node is the node's name. Data is a directory on the file system of the pods' disks.
	Node, Data string
	// Listen is the address to listen on. Without an API server, it is the path of a socket for its owner.
	Listen   string
	Settings Settings
	Pods     *pods.Pods
	Runtime  runtime.Runtime
	// Client is a client of the API server, which authorises clients. Serving is the certificate of this server.
	Client  kubernetes.Interface
	Serving *certs.Serving
	// Cert is the node's client certificate if the node renews it.
	Cert   *certs.Client
	Logger *slog.Logger
}

// Server serves the API. It also counts the events of pods.
type Server struct {
	*series.Series
	http   *http.Server
	gate   *conns.Gate // nil without an API server
	listen net.Listener
}

// New returns a server that listens and does not answer yet. The caller calls Run or Close.
func New(ctx context.Context, o Options) (s *Server, err error) {
	s = &Server{}
	if o.Client == nil {
		s.listen, err = socket(ctx, o.Listen)
	} else {
		s.listen, err = (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	}
	if err != nil {
		return nil, fmt.Errorf("serve the node's API: %w", err)
	}
	// The pods are opened after the server, so their methods are not bound yet.
	statuses := func() map[types.UID]corev1.PodStatus { return o.Pods.Statuses() }
	usages := func(ctx context.Context) (map[types.UID]usage.Pod, error) { return o.Pods.Usages(ctx) }
	counts := series.Options{Node: o.Node, Statuses: statuses}
	counts.Claims = func() map[types.NamespacedName]usage.Volume { return o.Pods.Claims() }
	if r, is := o.Runtime.(interface{ Metrics() prometheus.Gatherer }); is { // another program serves its metrics itself
		counts.More = r.Metrics()
	}
	if o.Cert != nil {
		counts.Client = o.Cert
	}
	if o.Serving != nil {
		counts.Serving = o.Serving
	}
	s.Series = series.New(counts)
	handler := api.New(o.Pods, o.Runtime, func(mux *http.ServeMux) {
		s.Register(mux)
		(&stats.Node{Name: o.Node, Dir: o.Data, Source: usages, Statuses: statuses}).Register(mux)
		o.Settings.register(mux)
	}, o.Logger).Handler()
	if o.Client == nil {
		s.http = server(s.Count(handler), o.Logger)
		return s, nil
	}
	reviewer := auth.New(o.Client, o.Node, o.Serving.Clients)
	guard := func(next http.Handler) http.Handler { return s.Count(reviewer.Guard(next, o.Logger)) }
	s.gate = conns.New(connLimits)
	s.http = guarded(s.gate, guard, handler, o.Serving.TLS(), o.Logger)
	return s, nil
}

// socket listens on a socket for its owner. The caller holds the lock of the instance, so an older socket is removed.
func socket(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // left by an earlier process
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close stops listening.
func (s *Server) Close() { _ = s.listen.Close() } // closed already if Run was called

// Run serves until ctx ends or the API cannot be served any more.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() {
		if s.gate != nil {
			served <- s.http.ServeTLS(s.gate.Listen(s.listen), "", "")
		} else {
			served <- s.http.Serve(s.listen)
		}
	}()
	var err error
	select {
	case err = <-served:
		err = errors.Join(err, s.http.Close())
	case <-ctx.Done():
		closed := s.http.Close()
		if err = <-served; errors.Is(err, http.ErrServerClosed) {
			err = closed
		}
	}
	if err != nil {
		return fmt.Errorf("serve its API: %w", err)
	}
	return nil
}
