// Package endpoint uses another program's runtime over the CRI, as --cri-endpoint configures. It refuses pods that need
// Bulkhead's own engine, and names the field.
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

	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/network"
)

// callTimeout limits a call, as a kubelet's runtimeRequestTimeout does. The caller limits pulls.
const callTimeout = 2 * time.Minute

// Options configure a Runtime. All are required.
type Options struct {
	// Endpoint is unix:///PATH.
	Endpoint string
	// Lock is the lock file of the engine that the runtime replaces. It keeps other processes from the node's pods.
	Lock string
	// Volumes is the directory of the pods' volumes.
	Volumes string
	Logger  *slog.Logger
}

// Runtime is a connection to a runtime. It is safe for concurrent use.
type Runtime struct {
	runtime *service
	images  internalapi.ImageManagerService
	lock    *flock.Lock
}

// Path returns the path of an endpoint's socket.
func Path(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "unix" || u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
		return "", fmt.Errorf("cri-endpoint %q must be unix:///PATH", endpoint)
	}
	return u.Path, nil
}

// Open connects to the runtime. If another process runs the node's pods, the error matches flock.ErrLocked. The caller
// calls Close.
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

// Close closes the connection. Pods continue to run.
func (r *Runtime) Close(ctx context.Context) error {
	return errors.Join(r.runtime.Close(ctx), r.images.Close(ctx), r.lock.Unlock())
}

// Backend returns the runtime for pods, without features beyond the CRI.
func (r *Runtime) Backend() runtime.Backend {
	return runtime.Backend{Runtime: r.runtime, Images: r.images, Refuse: refuse, Network: string(network.KindCNI)}
}

// below reports whether a path lies in a directory.
func below(dir, path string) bool {
	return strings.HasPrefix(filepath.Clean(path), filepath.Clean(dir)+"/")
}
