package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/pods/runner"
	"github.com/bulkhead-project/bulkhead/door/node/resources/admission"
	"github.com/bulkhead-project/bulkhead/door/node/runtime/local"
	"github.com/bulkhead-project/bulkhead/door/node/server/api"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Socket is the name of the API's socket of a node without an API server, in the directory of the node's state. Only
// its owner may connect.
const Socket = "api.sock"

// alone runs a node without an API server, which has only static pods, until ctx ends.
func (n *node) alone(ctx context.Context, dir, volumes string, ready func()) (err error) {
	o := n.o
	facts, err := o.Measure()
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	n.guard()
	n.newSeries()
	itself := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: n.labels()}, Spec: corev1.NodeSpec{Taints: o.Taints}}
	itself.Status = n.measurer(facts).Status(ctx)
	admits := admission.New(func() *corev1.Node { return itself }, n.runtime.Backend().Refuse, n.admits)
	if n.listen, err = n.socket(ctx); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	n.runner, err = runner.Open(ctx, runner.Options{
		Dir: dir, VolumeDir: volumes, SeccompDir: o.Roots.Seccomp(), Backend: n.runtime.Backend(), Objects: none{}, Claims: n.claimsOf,
		Node: o.Name, HostIP: o.IP, ClusterDomain: o.ClusterDomain, DNS: n.resolver,
		Pod: func(types.UID) *corev1.Pod { return nil }, Changed: n.changed, Event: n.events.Pod, Watch: n.series, Logger: o.Logger,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("node: %w", err), n.listen.Close())
	}
	defer n.runner.Close()
	n.runner.Reserve(admits.AddRunning)
	if err := n.static.open(admits, n.preempting(admits)); err != nil {
		return errors.Join(fmt.Errorf("node: %w", err), n.listen.Close())
	}
	n.server = server(n.series.Count(api.New(n.runner, n.runtime, n.registerMore, o.Logger).Handler()), o.Logger)
	return n.serveAlone(ctx, ready)
}

// socket listens on the node's socket. This process holds the lock of the instance, so it may remove an older socket.
func (n *node) socket(ctx context.Context) (net.Listener, error) {
	path := filepath.Join(n.o.Roots.Instance(local.Instance), Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // left by an earlier process
		return nil, fmt.Errorf("serve the node's API: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve the node's API: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("serve the node's API: %w", err), l.Close())
	}
	return l, nil
}

// serveAlone serves the API and runs the static pods until ctx ends or one of the two fails.
func (n *node) serveAlone(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var failed, unwatched error
	all.Go(func() {
		defer cancel()
		if err := n.server.Serve(n.listen); !errors.Is(err, http.ErrServerClosed) {
			failed = fmt.Errorf("node: serve its API: %w", err)
		}
	})
	all.Go(func() {
		defer cancel()
		unwatched = n.static.run(ctx, ready)
	})
	n.startLoops(ctx, &all)
	<-ctx.Done()
	err := n.server.Close()
	all.Wait()
	return errors.Join(failed, unwatched, err)
}

// none implements runner.Objects for a node without an API server: it has no objects.
type none struct{}

func (none) Of(*corev1.Pod) (volume.Objects, func()) { return none{}, func() {} }
func (none) Known(*corev1.Pod) bool                  { return true }
func (none) Refer(*corev1.Pod)                       {}
func (none) Forget(types.UID)                        {}

func (none) ConfigMap(_ context.Context, name string) (*corev1.ConfigMap, error) {
	return nil, volume.NotFound("configmap", name)
}

func (none) Secret(_ context.Context, name string) (*corev1.Secret, error) {
	return nil, volume.NotFound("secret", name)
}

// Changed implements volume.Objects. It returns nil, because nothing can change.
func (none) Changed() <-chan struct{} { return nil }
