// Package endpoint is a runtime of another program's, asked over the CRI: what --cri-endpoint names. What only
// Bulkhead's own engine can do is refused by name.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	criclient "k8s.io/cri-client/pkg"

	"github.com/bulkhead-project/bulkhead/door/node/runner"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/network"
)

// callTimeout bounds a call, as a kubelet's runtimeRequestTimeout does. Pulls are bounded by who asks.
const callTimeout = 2 * time.Minute

// Options are a runtime's. All are required.
type Options struct {
	// Endpoint is unix:///PATH.
	Endpoint string
	// Lock is the file that keeps other processes off the node's pods: that of the engine in whose place the
	// runtime is.
	Lock string
	// Volumes is the directory of the pods' volumes.
	Volumes string
	Logger  *slog.Logger
}

// Runtime is one. Its methods may be called at once.
type Runtime struct {
	runtime *service
	images  internalapi.ImageManagerService
	lock    *flock.Lock
}

// Path is that of the socket of an endpoint.
func Path(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "unix" || u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
		return "", fmt.Errorf("cri-endpoint %q must be unix:///PATH", endpoint)
	}
	return u.Path, nil
}

// Open connects with the runtime. Where another process has the node's pods, the error matches
// flock.ErrLocked. The caller calls Close.
func Open(ctx context.Context, o Options) (_ *Runtime, err error) {
	if _, err := Path(o.Endpoint); err != nil {
		return nil, err
	}
	if err := dirs.Ensure(filepath.Dir(o.Lock), 0o700); err != nil {
		return nil, err
	}
	lock, err := flock.Try(o.Lock)
	if err != nil {
		return nil, fmt.Errorf("another process runs the node's pods: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Unlock())
		}
	}()
	remote, err := criclient.NewRemoteRuntimeServiceBuilder().WithEndpoint(o.Endpoint).WithConnectionTimeout(callTimeout).
		WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime: %w", err)
	}
	images, err := criclient.NewRemoteImageServiceBuilder().WithEndpoint(o.Endpoint).WithConnectionTimeout(callTimeout).
		WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the runtime's image service: %w", err), remote.Close(ctx))
	}
	return &Runtime{
		runtime: &service{RuntimeService: remote, volumes: o.Volumes, relist: relist{remote, o.Logger}},
		images:  images, lock: lock,
	}, nil
}

// Close ends the connection. Pods live on.
func (r *Runtime) Close(ctx context.Context) error {
	return errors.Join(r.runtime.Close(ctx), r.images.Close(ctx), r.lock.Unlock())
}

// Backend is what runs pods. It can no more than the CRI.
func (r *Runtime) Backend() runner.Backend {
	return runner.Backend{Runtime: r.runtime, Images: r.images, Refuse: refuse, Network: string(network.KindCNI)}
}

// below tells whether a path lies in a directory.
func below(dir, path string) bool {
	return strings.HasPrefix(filepath.Clean(path), filepath.Clean(dir)+"/")
}
