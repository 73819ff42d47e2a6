// Package attach waits until a volume is attached to a node. The cluster's controllers attach it. The node first
// reports that it uses the volume, which keeps the controllers from detaching it.
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
	"github.com/bulkhead-project/bulkhead/internal/retry"
)

const (
	// wait limits the wait for one volume.
	wait = 2 * time.Minute
	// callTimeout limits each request.
	callTimeout = 10 * time.Second
)

// pauses are the pauses between reads of a VolumeAttachment. A node may get it, but may not watch it.
var pauses = retry.Pauses{First: 200 * time.Millisecond, Last: 5 * time.Second}

// Options configure a Waiter. All are required.
type Options struct {
	Client kubernetes.Interface
	Name   string
	// Node returns the latest Node of the watch, or nil.
	Node func() *corev1.Node
	// InUse reports whether the API server has confirmed that the node uses a volume. The Node of the watch cannot
	// tell, because it may be older than the end of an earlier use.
	InUse func(corev1.UniqueVolumeName) bool
	// Changed returns a channel that is closed when Node or InUse have changed.
	Changed func() <-chan struct{}
}

// Waiter waits for volumes. It is safe for concurrent use.
type Waiter struct{ o Options }

// New returns a Waiter.
func New(o Options) *Waiter { return &Waiter{o} }

// errDetached means that the volume is not attached. errUnused means that the API server does not list it as in use.
var (
	errDetached = errors.New("the volume is not attached")
	errUnused   = errors.New("the volume has not been added to the list of VolumesInUse in the node's status")
)

// Wait returns once the volume of that name and handle is attached, with the attacher's metadata for the driver. The
// caller must first have made the node report the volume in use.
func (w *Waiter) Wait(
	ctx context.Context, name corev1.UniqueVolumeName, driver, handle string,
) (metadata map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		changed := w.o.Changed()
		if err = w.check(w.o.Node(), name); err == nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("volume %s: %w", name, err)
		}
	}
	err = pauses.Until(ctx, nil, func() error {
		err := w.confirm(ctx, name)
		if err == nil {
			metadata, err = w.get(ctx, driver, handle)
		}
		return err
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	return metadata, nil
}

// check returns an error unless the API server has confirmed the use of the volume and the Node lists it as attached.
func (w *Waiter) check(node *corev1.Node, name corev1.UniqueVolumeName) error {
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

// confirm reads the Node from the API server, because the Node of the watch may be outdated and the volume detached
// since. The controllers do not detach a volume that is both in use and attached.
func (w *Waiter) confirm(ctx context.Context, name corev1.UniqueVolumeName) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := w.o.Client.CoreV1().Nodes().Get(ctx, w.o.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("get the Node: %w", err)
	case !slices.Contains(node.Status.VolumesInUse, name): // another Node than the one that reported it
		return errUnused
	}
	return w.check(node, name)
}

// get reads the VolumeAttachment and returns the attacher's metadata.
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
