// Package registration registers the host as a node: its client of the API server, its Node object and its
// certificates. The packages below do the work. This one connects them.
package registration

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	goruntime "runtime"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/events"
	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/door/node/registration/certs"
	"github.com/bulkhead-project/bulkhead/door/node/registration/internal/object"
)

// Options describe a node to an API server. Labels, Taints, Reserved, Client and the certificate options are optional.
type Options struct {
	// Config describes how to reach the API server. If nil, there is none.
	Config *rest.Config
	// Name is the node's name. IP is the address by which others reach it; if empty, it is detected.
	Name, IP string
	Labels   map[string]string
	Taints   []corev1.Taint
	MaxPods  int
	Reserved corev1.ResourceList
	// Listen is the address of the node's API. Cert and Key are the files of its certificate. ClientCA is the file of
	// the authorities that sign client certificates.
	Listen, Cert, Key, ClientCA string
	// RotateServing requests and renews that certificate by CSR if no file is configured. CertDir keeps it.
	RotateServing bool
	CertDir       string
	// Client is the node's client certificate if the node renews it; nil means the certificate of Config.
	Client *certs.Client
	// Measure measures the host; nil means host.Measure.
	Measure func() (host.Facts, error)
	Version string
}

// Node is the Node object of this host. It is safe for concurrent use. Without an API server, it exists only here.
type Node struct {
	// Serving is the certificate of the node's API; nil without an API server.
	Serving *certs.Serving

	o        Options
	keeper   *object.Keeper // nil without an API server
	measurer *object.Measurer
	itself   *corev1.Node // without an API server, after Describe
	recorder *events.Events
}

// Figures describe the use of the host.
type Figures = object.Figures

// New returns the Node. client is nil without an API server. data is a directory on the file system of the pods' disks.
// The caller calls ReportVolumes, Describe and then Run.
func New(
	o Options, client kubernetes.Interface, runtime internalapi.RuntimeService, data string, recorder *events.Events, log *slog.Logger,
) (n *Node, err error) {
	if o.Measure == nil {
		o.Measure = host.Measure
	}
	n = &Node{o: o, recorder: recorder}
	n.measurer = &object.Measurer{
		Runtime: runtime, Name: o.Name, Address: o.IP, MaxPods: int64(o.MaxPods), DataDir: data, Reserved: o.Reserved, Version: o.Version,
	}
	if n.measurer.Facts, err = o.Measure(); err != nil || client == nil {
		return n, err
	}
	at, err := netip.ParseAddrPort(o.Listen)
	if err != nil {
		return nil, err
	}
	n.measurer.Port = int32(at.Port())
	n.keeper, err = object.New(object.Options{
		Client: client, Name: o.Name, Labels: o.labels(), Taints: o.Taints, Status: n.measurer.Status, Events: recorder.Recorder, Logger: log,
		PodCIDR: func(ctx context.Context, cidrs string) error {
			return runtime.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs}})
		},
		Clash: func(other *corev1.Node) {
			const message = "another host has registered a node of the same name: stop one of the two"
			recorder.Recorder.Event(other, corev1.EventTypeWarning, "NodeNameClash", message)
			log.Error(message, "node", o.Name, "other", other.Status.NodeInfo.SystemUUID)
		},
	})
	if err != nil {
		return nil, err
	}
	n.Serving, err = o.serving(client, log)
	return n, err
}

// labels returns the labels of the Node at its registration.
func (o *Options) labels() map[string]string {
	labels := map[string]string{
		corev1.LabelHostname: o.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: goruntime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": goruntime.GOARCH,
	}
	maps.Copy(labels, o.Labels)
	return labels
}

// Describe sets the figures that the status shows. It is called once, before Run.
func (n *Node) Describe(ctx context.Context, of Figures) {
	n.measurer.Figures = of
	if n.keeper == nil {
		meta := metav1.ObjectMeta{Name: n.o.Name, Labels: n.o.labels()}
		n.itself = &corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Taints: n.o.Taints}, Status: n.measurer.Status(ctx)}
	}
}

// ReportVolumes adds the attached volumes in use to the status, and sets annotations. changed is called when the Node or
// the volumes have changed. A nil inUse leaves the Node's list as it is. It is called at most once, before Run.
func (n *Node) ReportVolumes(inUse func() []corev1.UniqueVolumeName, changed func(), annotations map[string]string) {
	if n.keeper != nil {
		n.keeper.ReportVolumes(inUse, changed, annotations)
	}
}

// Run maintains the Node and the certificates until ctx ends. It calls registered once, when the Node first exists.
func (n *Node) Run(ctx context.Context, registered func()) {
	if n.keeper == nil {
		return
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { n.Serving.Run(ctx) })
	if n.o.Client != nil {
		all.Go(func() { n.o.Client.Run(ctx) })
	}
	n.keeper.Run(ctx, registered)
}

// Node returns the Node that the API server had last, or nil without one. The caller must not change it.
func (n *Node) Node() *corev1.Node {
	if n.keeper == nil {
		return nil
	}
	return n.keeper.Node()
}

// Last is like Node, but also returns a Node that was deleted, or that exists only here.
func (n *Node) Last() *corev1.Node {
	if n.keeper == nil {
		return n.itself
	}
	return n.keeper.Last()
}

// InUse reports whether the API server has confirmed that the node uses a volume.
func (n *Node) InUse(name corev1.UniqueVolumeName) bool {
	return n.keeper != nil && n.keeper.InUse(name)
}

// Measure publishes the status of the node now. It does not block.
func (n *Node) Measure() {
	if n.keeper != nil {
		n.keeper.Measure()
	}
}

// Warn records a warning event of the node. Without an API server the message is only in the log of its cause.
func (n *Node) Warn(reason, message string) {
	if now := n.Node(); now != nil {
		n.recorder.Recorder.Event(now, corev1.EventTypeWarning, reason, message)
	}
}
