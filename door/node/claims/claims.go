// Package claims has the PersistentVolumeClaims of a node's pods, their generic ephemeral volumes and the volumes of CSI
// drivers be places of the host. What a pod has been given lies in a directory of the pod's own, so that the next process
// goes on without an API server, and undoes what an earlier one has mounted or begun to.
package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/internal/broadcast"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Place is where on the host a volume lies.
type Place = volume.Place

// Request asks for one volume of a pod. Nothing of it may be changed.
type Request struct {
	Pod *corev1.Pod
	// Volume is the volume's name in the pod.
	Volume string
	// PV is a persistent volume of a CSI driver, Inline one of the pod's own. One of both is set.
	PV     *corev1.PersistentVolume
	Inline *corev1.CSIVolumeSource
	// Block asks for a device, and not for the files on it.
	Block, ReadOnly bool
	// FSGroup is the pod's, nil for none.
	FSGroup *int64
}

// Mounter mounts the volumes of CSI drivers. Its methods may be called at once, but not for one volume of one pod.
type Mounter interface {
	// Mount has a volume be there and returns where. It is called before each VM of a pod, also for a volume that is
	// mounted, and again while it fails.
	Mount(ctx context.Context, r Request) (Place, error)
	// Unmount undoes Mount, of an earlier process as well, and one that failed or was killed. It succeeds where
	// nothing is left. It is called until it does, and before the pod's object goes.
	Unmount(ctx context.Context, uid types.UID, volume string) error
}

// Options are a Keeper's. Node and Places are required.
type Options struct {
	// Client is that of the API server; without one no claim is found.
	Client kubernetes.Interface
	// Node is the Node as the API server has it, nil before it is known.
	Node func() *corev1.Node
	// Places says what no pod gets of the host.
	Places place.Rules
	// CSI mounts the volumes of CSI drivers; nil has none.
	CSI    Mounter
	Logger *slog.Logger
}

// Keeper has the volumes of all pods of a node. Its methods may be called at once.
type Keeper struct {
	o       Options
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	changed broadcast.Broadcast

	devices devices

	taking sync.Mutex // held while a volume becomes a pod's

	mu   sync.Mutex
	pods map[types.UID]*Volumes // with anything mounted or begun, or of which that is not known
}

// New makes a keeper. The caller calls Close.
func New(o Options) *Keeper {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{o: o, pods: map[types.UID]*Volumes{}, devices: devices{read: signature, held: map[device]chan struct{}{}}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Close ends what is done beside callers. What is mounted stays mounted.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.stop()
	k.mu.Unlock()
	k.wg.Wait()
}

// beside does something that Close waits for. It is false after Close.
func (k *Keeper) beside(do func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return false
	}
	k.wg.Go(do)
	return true
}

// recordsDir is the directory of a pod's own directory with a file for each volume.
const recordsDir = "claims"

// Of are the volumes of a pod whose own directory is dir. What an earlier process has left there counts.
func (k *Keeper) Of(pod *corev1.Pod, dir string) *Volumes {
	v := &Volumes{k: k, pod: pod, dir: filepath.Join(dir, recordsDir), op: make(chan struct{}, 1)}
	if err := v.read(); err != nil {
		k.o.Logger.Error("reading the records of a pod's volumes failed", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "error", err)
	}
	if len(v.known()) > 0 || v.notKnown() != nil {
		k.keep(v)
	}
	return v
}

func (k *Keeper) keep(v *Volumes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[v.pod.UID] = v
}

// drop forgets a pod that has nothing mounted.
func (k *Keeper) drop(v *Volumes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pods[v.pod.UID] == v {
		delete(k.pods, v.pod.UID)
	}
}

// Changed has the volumes that pods wait for be tried again now.
func (k *Keeper) Changed() { k.changed.Tell() }

func (k *Keeper) all() (all []*Volumes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range k.pods {
		all = append(all, v)
	}
	return all
}

// errUsed is why a second pod of the node does not get a claim that is for one.
var errUsed = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// take writes down that a pod has a volume. It fails for a PersistentVolume that is for one pod and that another has.
func (k *Keeper) take(v *Volumes, name string, r record) error {
	k.taking.Lock()
	defer k.taking.Unlock()
	if r.PV != nil && onePod(r.PV) {
		if err := k.free(v.pod.UID, r.PV); err != nil {
			return err
		}
	}
	return v.save(name, r)
}

// free fails for a PersistentVolume that another pod than uid has.
func (k *Keeper) free(uid types.UID, pv *corev1.PersistentVolume) error {
	for _, v := range k.all() {
		if v.pod.UID == uid {
			continue
		}
		unknown := v.notKnown() != nil
		for _, r := range v.known() {
			unknown = unknown || r.damaged
			if r.PV != nil && r.PV.UID == pv.UID {
				return errUsed
			}
		}
		if unknown { // it may have this one
			return fmt.Errorf("%w, perhaps: the volumes of pod %s/%s are not known", errUsed, v.pod.Namespace, v.pod.Name)
		}
	}
	return nil
}
