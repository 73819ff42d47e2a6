// Package node is the door of a Kubernetes API server. It registers the host as a node and runs the pods that are bound
// to it, each in a VM, without a kubelet. The packages below do the work. This one connects them and waits for them.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/events"
	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/door/node/pods"
	"github.com/bulkhead-project/bulkhead/door/node/registration"
	"github.com/bulkhead-project/bulkhead/door/node/resources"
	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/runtime/local"
	"github.com/bulkhead-project/bulkhead/door/node/server"
	"github.com/bulkhead-project/bulkhead/door/node/storage"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// GCPercent is the growth of the heap, in percent, that triggers a collection if GOGC is not set. A thousand pods that
// arrive at once take 60 MB with it, and 70 MB with Go's default of 100, at the same CPU usage (make bench-node).
const GCPercent = 50

// socket is the name of the API's socket of a node without an API server, in the directory of the node's state.
const socket = "api.sock"

// Options configure a node. RootDir and ClusterDNS are optional. Without Config, the node has only the pods of
// Manifests.
type Options struct {
	registration.Options
	resources.Limits
	Roots dirs.Roots
	// Manifests is the directory of static pods; empty means none.
	Manifests string
	// RootDir is a kubelet's root directory, where CSI drivers expect to find the node; empty disables CSI drivers.
	RootDir string
	// ClusterDNS are the cluster's name servers. ClusterDomain is the domain of its services.
	ClusterDNS    []string
	ClusterDomain string
	// Engine are further options of the engine.
	Engine engine.Options
	// Runtime opens the runtime of the pods; nil means an engine in this process.
	Runtime func(context.Context, local.Options) (runtime.Runtime, error)
	Logger  *slog.Logger
}

// settings returns the settings that the API shows.
func (o *Options) settings() server.Settings {
	at, _ := netip.ParseAddrPort(o.Listen) // the node listens on it, so it parses
	return server.Settings{
		Address: at.Addr().String(), Port: at.Port(), StaticPodPath: o.Manifests, TLSCertFile: o.Cert, RotateCertificates: o.Client != nil,
		ServerTLSBootstrap: o.RotateServing, ClusterDomain: o.ClusterDomain, ClusterDNS: o.ClusterDNS, MaxPods: o.MaxPods,
	}
}

// Run runs a node until ctx ends. It calls ready once the node is registered or has read its static pods. The pods
// survive it. If another process is a node on this host, the error matches flock.ErrLocked.
func Run(ctx context.Context, o Options, ready func()) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("node: %w", err)
		}
	}()
	if o.IP == "" {
		// A node without an API server needs no address: no client has to find it.
		if o.IP, err = host.Address(); err != nil && o.Config != nil {
			return err
		}
	}
	if o.Runtime == nil {
		o.Runtime = func(ctx context.Context, of local.Options) (runtime.Runtime, error) { return local.Open(ctx, of) }
	}
	client, err := registration.Connect(o.Options)
	if err != nil {
		return err
	}
	h := pods.Host{
		Dir: filepath.Join(o.Roots.Data, "node", "pods"), VolumeDir: filepath.Join(o.Roots.Instance(local.Instance), "volumes"),
		SeccompDir: o.Roots.Seccomp(), HostIP: o.IP, ClusterDomain: o.ClusterDomain,
	}
	vms, err := o.Runtime(ctx, local.Options{Roots: o.Roots, Pods: h.Dir, Volumes: h.VolumeDir, Engine: o.Engine, Logger: o.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vms.Close(context.WithoutCancel(ctx))) }()
	h.Backend = vms.Backend()
	h.DNS = func(pod *corev1.Pod) *runtimeapi.DNSConfig { return o.resolver(h.Backend.Network, pod) }
	recorder := events.New(client, o.Name, o.Logger)
	defer recorder.Close()

	itself, err := registration.New(o.Options, client, h.Backend.Runtime, o.Roots.Data, recorder, o.Logger)
	if err != nil {
		return err
	}
	all, err := pods.New(pods.Options{
		Client: client, Name: o.Name, Node: itself.Node, Manifests: o.Manifests, Events: recorder, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	stores, err := storage.Open(storage.Options{
		Client: client, RootDir: o.RootDir, Dir: filepath.Join(o.Roots.Data, "node", "csi"), Name: o.Name, Node: itself,
		Places: h.Backend.Places, Wake: all.Wake, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	defer stores.Close()
	stores.Provide(&h)
	listen := o.Listen
	if client == nil {
		listen = filepath.Join(o.Roots.Instance(local.Instance), socket)
	}
	api, err := server.New(ctx, server.Options{
		Node: o.Name, Data: o.Roots.Data, Listen: listen, Settings: o.settings(), Pods: all, Runtime: vms, Client: client,
		Serving: itself.Serving, Cert: o.Client, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	defer api.Close()
	h.Watch = api
	room := resources.New(ctx, resources.Options{
		Limits: o.Limits, Node: itself, Pods: all, Backend: h.Backend, Data: o.Roots.Data, Evicted: api.Evicted, Events: recorder,
		Logger: o.Logger,
	})
	if err := all.Open(ctx, h, room); err != nil {
		return err
	}
	defer all.Close()

	ready = sync.OnceFunc(ready)
	work, ctx := errgroup.WithContext(ctx)
	run := func(do func()) {
		work.Go(func() error { do(); return nil })
	}
	work.Go(func() error { return api.Run(ctx) })
	work.Go(func() error { return all.Run(ctx, ready) })
	run(func() { itself.Run(ctx, ready) })
	run(func() { stores.Run(ctx, all.Has) })
	run(func() { room.Run(ctx) })
	return work.Wait()
}
