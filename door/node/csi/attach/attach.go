// Package attach waits until a volume is attached to a node. Controllers attach it; the node tells that it uses the volume
// before it does, and is then sure that nobody detaches it.
package attach

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/internal/printable"
)

const (
	// wait bounds how long one is waited for.
	wait = 2 * time.Minute
	// callTimeout bounds each request.
	callTimeout = 10 * time.Second
	// firstPause and lastPause bound the pauses between looks at a VolumeAttachment, which a node may get and not watch.
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Options are a Waiter's. All are required.
type Options struct {
	Client kubernetes.Interface
	Name   string
	// Node is the Node as the API server had it last, nil for none.
	Node func() *corev1.Node
	// InUse tells whether the API server has confirmed that the node uses a volume. A Node of the watch does not say so: it may
	// be of before an earlier pod's use ended.
	InUse func(corev1.UniqueVolumeName) bool
	// Changed is closed when Node or InUse have changed.
	Changed func() <-chan struct{}
}

// Waiter waits. Its methods may be called at once.
type Waiter struct{ o Options }

// New makes a Waiter.
func New(o Options) *Waiter { return &Waiter{o} }

// errDetached is of a volume that nobody has attached, errUnused of one that the API server does not know to be used.
var (
	errDetached = errors.New("the volume is not attached")
	errUnused   = errors.New("the volume has not been added to the list of VolumesInUse in the node's status")
)

// Wait returns when the volume of that name and handle is attached, and what its attacher says to the driver. The node must
// have been told to tell that it uses the volume.
func (w *Waiter) Wait(
	ctx context.Context, name corev1.UniqueVolumeName, driver, handle string,
) (metadata map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		changed := w.o.Changed()
		if err = w.told(w.o.Node(), name); err == nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("volume %s: %w", name, err)
		}
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err = w.confirm(ctx, name); err == nil {
			metadata, err = w.get(ctx, driver, handle)
		}
		if err == nil {
			return metadata, nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("volume %s: %w", name, err)
		}
		timer.Stop()
	}
}

// told tells whether the API server has that the node uses the volume, and whether the Node says that it is attached.
func (w *Waiter) told(node *corev1.Node, name corev1.UniqueVolumeName) error {
	switch {
	case node == nil:
		return errors.New("the node is not registered yet")
	case !w.o.InUse(name):
		return errUnused
	case !slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name }):
		return fmt.Errorf("status of the Node: %w", errDetached)
	}
	return nil
}

// confirm asks the API server itself, when it has been told that the node uses the volume. The Node of the watch may be of before,
// and the volume may have been detached since. Nobody detaches one that is both used and attached.
func (w *Waiter) confirm(ctx context.Context, name corev1.UniqueVolumeName) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := w.o.Client.CoreV1().Nodes().Get(ctx, w.o.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("get the Node: %w", err)
	case !slices.Contains(node.Status.VolumesInUse, name): // it is another Node than the one that was told
		return errUnused
	}
	return w.told(node, name)
}

// get looks at the VolumeAttachment.
func (w *Waiter) get(ctx context.Context, driver, handle string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	name := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+w.o.Name)))
	got, err := w.o.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("get the VolumeAttachment: %w", err)
	case got.DeletionTimestamp != nil:
		return nil, fmt.Errorf("VolumeAttachment %s is being deleted", name)
	case got.Status.Attached:
		return got.Status.AttachmentMetadata, nil
	case got.Status.AttachError != nil:
		words := got.Status.AttachError.Message
		return nil, fmt.Errorf("%w: %s", errDetached, printable.Text(words[:min(len(words), 1024)]))
	}
	return nil, errDetached
}
