// Package node is the door of a Kubernetes API server. It registers the host as a node and runs the pods that are bound
// to it, each in a VM, without a kubelet. The packages below do the work. This one connects them and waits for them.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/bounds"
	"github.com/bulkhead-project/bulkhead/door/node/events"
	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/pods/runner"
	"github.com/bulkhead-project/bulkhead/door/node/pods/status"
	"github.com/bulkhead-project/bulkhead/door/node/registration/certs"
	"github.com/bulkhead-project/bulkhead/door/node/registration/object"
	"github.com/bulkhead-project/bulkhead/door/node/resources/admission"
	"github.com/bulkhead-project/bulkhead/door/node/resources/eviction"
	"github.com/bulkhead-project/bulkhead/door/node/resources/images"
	"github.com/bulkhead-project/bulkhead/door/node/resources/shutdown"
	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/runtime/local"
	"github.com/bulkhead-project/bulkhead/door/node/server/api"
	"github.com/bulkhead-project/bulkhead/door/node/server/auth"
	"github.com/bulkhead-project/bulkhead/door/node/server/conns"
	"github.com/bulkhead-project/bulkhead/door/node/server/series"
	"github.com/bulkhead-project/bulkhead/door/node/storage/claims"
	"github.com/bulkhead-project/bulkhead/door/node/storage/csi"
	"github.com/bulkhead-project/bulkhead/door/node/storage/objects"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// GCPercent is the growth of the heap, in percent, that triggers a collection if GOGC is not set. A thousand pods that
// arrive at once take 60 MB with it, and 70 MB with Go's default of 100, at the same CPU usage (make bench-node).
const GCPercent = 50

// Options configure a node. Labels, Taints, RootDir, Reserved, ClusterDNS, Client and the certificate options are
// optional.
type Options struct {
	Roots dirs.Roots
	// Config describes how to reach the API server. If nil, the node has only the pods of Manifests.
	Config *rest.Config
	// Manifests is the directory of static pods; empty means none.
	Manifests string
	// Name is the node's name. IP is the address by which others reach it; if empty, it is detected.
	Name, IP string
	Labels   map[string]string
	Taints   []corev1.Taint
	// RootDir is a kubelet's root directory, where CSI drivers expect to find the node; empty disables CSI drivers.
	RootDir  string
	MaxPods  int
	Reserved corev1.ResourceList
	// ClusterDNS are the cluster's name servers. ClusterDomain is the domain of its services.
	ClusterDNS    []string
	ClusterDomain string
	// Listen is the address of the node's API. Cert and Key are the files of its certificate. ClientCA is the file of
	// the authorities that sign client certificates.
	Listen, Cert, Key, ClientCA string
	// RotateServing requests and renews that certificate by CSR if no file is configured. CertDir keeps it.
	RotateServing bool
	CertDir       string
	// Client is the node's client certificate if the node renews it; nil means the certificate of Config.
	Client *certs.Client
	// Eviction are the thresholds at which pods are evicted.
	Eviction []eviction.Threshold
	// ImageGCHigh is the percentage of disk usage at which unused images are removed, until usage falls to ImageGCLow.
	// 0 disables the removal. Images younger than ImageMinAge are kept.
	ImageGCHigh, ImageGCLow int
	ImageMinAge             time.Duration
	// ShutdownGrace is how long pods may delay a shutdown of the host. ShutdownGraceCritical is the part of it for
	// critical pods. 0 means no delay.
	ShutdownGrace, ShutdownGraceCritical time.Duration
	// Engine are further options of the engine.
	Engine engine.Options
	// Measure measures the host; nil means host.Measure.
	Measure func() (host.Facts, error)
	// Runtime opens the runtime of the pods; nil means an engine in this process.
	Runtime func(context.Context, local.Options) (runtime.Runtime, error)
	Version string
	Logger  *slog.Logger
}

// open opens an engine in this process.
func open(ctx context.Context, o local.Options) (runtime.Runtime, error) { return local.Open(ctx, o) }

// node is a running node.
type node struct {
	o          Options
	client     kubernetes.Interface
	runtime    runtime.Runtime
	cache      *control.Cache
	objects    *objects.Cache
	claims     *claims.Keeper
	csi        *csi.Plugin // nil without drivers
	events     *events.Events
	runner     *runner.Runner
	status     *status.Reporter
	keeper     *object.Keeper
	kept       atomic.Pointer[object.Keeper] // keeper, once it exists
	images     *images.Collector
	eviction   *eviction.Manager
	shutdown   *shutdown.Manager
	series     *series.Series
	pods       *control.Controller
	controller atomic.Pointer[control.Controller] // pods, once it exists
	static     *static
	certs      *certs.Serving
	gate       *conns.Gate
	server     *http.Server
	listen     net.Listener
}

// Run runs a node until ctx ends. It calls ready once the node is registered or has read its static pods. The pods
// survive it. If another process is a node on this host, the error matches flock.ErrLocked.
func Run(ctx context.Context, o Options, ready func()) (err error) {
	if o.IP == "" {
		// A node without an API server needs no address: no client has to find it.
		if o.IP, err = host.Address(); err != nil && o.Config != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	ready = sync.OnceFunc(ready)
	n := &node{o: o}
	n.static = newStatic(n)
	if o.Config != nil {
		if err := n.connect(); err != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	dir := filepath.Join(o.Roots.Data, "node", "pods")
	volumes := filepath.Join(o.Roots.Instance(local.Instance), "volumes")
	if o.Runtime == nil {
		o.Runtime = open
	}
	if n.o.Measure == nil {
		n.o.Measure = host.Measure
	}
	n.runtime, err = o.Runtime(ctx, local.Options{Roots: o.Roots, Pods: dir, Volumes: volumes, Engine: o.Engine, Logger: o.Logger})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	defer func() { err = errors.Join(err, n.runtime.Close(context.WithoutCancel(ctx))) }()
	if err := n.openClaims(); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	defer n.closeClaims()
	n.events = events.New(n.client, o.Name, o.Logger)
	defer n.events.Close()
	if o.Config == nil {
		return n.alone(ctx, dir, volumes, ready)
	}
	n.objects = objects.New(objects.Options{Client: n.client, Wake: n.wake, Logger: o.Logger})
	defer n.objects.Close()
	if err := n.assemble(ctx, dir, volumes); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	defer n.runner.Close()
	return n.serve(ctx, ready)
}

// connect creates the client of the API server. It does not limit its rate: an overloaded server asks clients to slow
// down.
func (n *node) connect() (err error) {
	config := rest.CopyConfig(n.o.Config)
	config.QPS, config.UserAgent = -1, "bulkhead-node/"+n.o.Version
	config.Wrap(bounds.Wrap)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if n.client, err = n.clientset(config); err != nil {
		return err
	}
	n.cache, err = control.NewCache(n.client, n.o.Name)
	return err
}

// wake requeues a pod. Until the controller exists this does nothing: the controller looks at all pods when it starts.
func (n *node) wake(uid types.UID) {
	if control.Static(uid) {
		n.static.wake(uid)
		return
	}
	if c := n.controller.Load(); c != nil {
		c.Wake(uid)
	}
}

// assemble creates the components that work on pods.
func (n *node) assemble(ctx context.Context, dir, volumes string) (err error) {
	o := n.o
	n.guard()
	admits := admission.New(func() *corev1.Node { return n.keeper.Last() }, n.runtime.Backend().Refuse, n.admits)
	n.status = status.New(status.Options{
		Client: n.client, Pod: n.cache.Get, Logger: o.Logger,
		Status: n.statusOf,
	})
	n.keeper, err = n.newKeeper()
	if err != nil {
		return err
	}
	n.kept.Store(n.keeper)
	if err := n.static.mirror(); err != nil {
		return err
	}
	if n.certs, err = n.serving(); err != nil {
		return err
	}
	n.newSeries()
	if n.listen, err = (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen); err != nil {
		return fmt.Errorf("serve the node's API: %w", err)
	}
	defer func() {
		if err == nil {
			return // the caller closes what was opened
		}
		if n.runner != nil {
			n.runner.Close()
		}
		err = errors.Join(err, n.listen.Close())
	}()
	of := runner.Options{
		Dir: dir, VolumeDir: volumes, SeccompDir: o.Roots.Seccomp(), Backend: n.runtime.Backend(), Objects: n.objects, Claims: n.claimsOf,
		Services: n.objects.Services, Handler: n.objects.Handler, Resources: admits,
		Node: o.Name, HostIP: o.IP, ClusterDomain: o.ClusterDomain, DNS: n.resolver, Pod: n.cache.Get,
		Changed: n.changed, Event: n.events.Pod, Watch: n.series, Logger: o.Logger,
	}
	if n.csi != nil {
		of.VolumeUse, of.VolumeAbsent = n.csi.Use, n.csi.Absent
	}
	if n.runner, err = runner.Open(ctx, of); err != nil {
		return err
	}
	n.runner.Reserve(admits.AddRunning)
	preempts := n.preempting(admits)
	n.pods, err = control.New(control.Options{
		Source: n.cache, Runner: n.runner.Bound(), Reporter: n.status, Admission: admits, Events: n.events.Recorder,
		Preempt: preempts.Preempt, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	n.controller.Store(n.pods)
	if err := n.static.open(admits, preempts); err != nil {
		return err
	}
	reviewer := auth.New(n.client, o.Name, n.certs.Clients)
	guard := func(next http.Handler) http.Handler { return n.series.Count(reviewer.Guard(next, o.Logger)) }
	n.gate = conns.New(connLimits)
	n.server = guarded(n.gate, guard, api.New(n.runner, n.runtime, n.registerMore, o.Logger).Handler(), n.certs.TLS(), o.Logger)
	return nil
}

// newKeeper creates the keeper of the Node object.
func (n *node) newKeeper() (*object.Keeper, error) {
	o := n.o
	facts, err := o.Measure()
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(o.Listen)
	if err != nil {
		return nil, err
	}
	measure := n.measurer(facts)
	measure.Port = int32(at.Port())
	of := object.Options{
		Client: n.client, Name: o.Name, Labels: n.labels(), Taints: o.Taints, Status: measure.Status, Logger: o.Logger,
		PodCIDR: func(ctx context.Context, cidrs string) error {
			return n.runtime.Backend().Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{
				NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs},
			})
		},
		Events: n.events.Recorder,
		Clash: func(other *corev1.Node) {
			const message = "another host has registered a node of the same name: stop one of the two"
			n.events.Recorder.Event(other, corev1.EventTypeWarning, "NodeNameClash", message)
			o.Logger.Error(message, "node", o.Name, "other", other.Status.NodeInfo.SystemUUID)
		},
	}
	if n.csi != nil {
		of.InUse, of.Changed = n.csi.InUse, n.csi.NodeChanged
		of.Annotations = map[string]string{csi.Annotation: "true"}
	} else {
		of.InUse = withoutDrivers(n.csiDir())
	}
	return object.New(of)
}

// measurer returns the measurer of the Node's status.
func (n *node) measurer(facts host.Facts) *object.Measurer {
	o := n.o
	return &object.Measurer{
		Facts: facts, Runtime: n.runtime.Backend().Runtime, Name: o.Name, Address: o.IP,
		MaxPods: int64(o.MaxPods), DataDir: o.Roots.Data, Reserved: o.Reserved, Version: o.Version,
		Withheld: func(all corev1.ResourceList) corev1.ResourceList { return eviction.Withheld(o.Eviction, all) },
		Pressure: n.eviction.Pressure, Images: n.images.Largest, Ending: n.shutdown.Ending,
	}
}

// labels returns the labels of the Node at its registration.
func (n *node) labels() map[string]string {
	labels := map[string]string{
		corev1.LabelHostname: n.o.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: goruntime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": goruntime.GOARCH,
	}
	maps.Copy(labels, n.o.Labels)
	return labels
}

// serve runs all components until ctx ends or the API cannot be served any more.
func (n *node) serve(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var failed error
	all.Go(func() {
		defer cancel()
		if err := n.server.ServeTLS(n.gate.Listen(n.listen), "", ""); !errors.Is(err, http.ErrServerClosed) {
			failed = fmt.Errorf("node: serve its API: %w", err)
		}
	})
	all.Go(func() { n.cache.RunWithContext(ctx) })
	all.Go(func() { n.status.Run(ctx) })
	all.Go(func() { n.pods.Run(ctx) })
	all.Go(func() { n.keeper.Run(ctx, ready) })
	all.Go(func() { n.drivers(ctx) })
	var unwatched error
	all.Go(func() {
		defer cancel()
		unwatched = n.static.run(ctx, ready)
	})
	all.Go(func() { n.certs.Run(ctx) })
	if n.o.Client != nil {
		all.Go(func() { n.o.Client.Run(ctx) })
	}
	n.startLoops(ctx, &all)
	<-ctx.Done()
	err := n.server.Close()
	all.Wait()
	return errors.Join(failed, unwatched, err)
}
