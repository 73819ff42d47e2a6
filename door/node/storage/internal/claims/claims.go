// Package claims mounts volumes of a node's pods at places of the host: PersistentVolumeClaims, generic ephemeral
// volumes and volumes of CSI drivers. Each pod's directory records its volumes. The next process can therefore continue
// without an API server, and undo what an earlier one has mounted or started to mount.
package claims

import (
	"cmp"
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

// Place is a volume's place on the host.
type Place = volume.Place

// Request asks for one volume of a pod. Its contents are read-only.
type Request struct {
	Pod *corev1.Pod
	// Volume is the volume's name in the pod.
	Volume string
	// PV is a persistent volume of a CSI driver. Inline is an inline volume of the pod. Exactly one of them is set.
	PV     *corev1.PersistentVolume
	Inline *corev1.CSIVolumeSource
	// Block requests the device instead of its files.
	Block, ReadOnly bool
	// FSGroup is the pod's fsGroup, or nil.
	FSGroup *int64
}

// Mounter mounts the volumes of CSI drivers. It is safe for concurrent use, except for the same volume of the same pod.
type Mounter interface {
	// Mount mounts a volume and returns its place. It is called before each VM of a pod, also for a mounted volume, and
	// again after a failure.
	Mount(ctx context.Context, r Request) (Place, error)
	// Unmount undoes Mount, also of an earlier process and of a call that failed or was killed. It succeeds if nothing
	// is left. It is repeated until it succeeds, before the pod's object is deleted.
	Unmount(ctx context.Context, uid types.UID, volume string) error
}

// Options configure a Keeper. Node and Places are required.
type Options struct {
	// Client is the client of the API server; if nil, no claim is found.
	Client kubernetes.Interface
	// Node returns the Node as the API server has it, or nil before the registration.
	Node func() *corev1.Node
	// Places decides which paths of the host pods cannot use.
	Places place.Rules
	// CSI mounts the volumes of CSI drivers; nil means no drivers.
	CSI    Mounter
	Logger *slog.Logger
}

// Keeper manages the volumes of all pods of a node. It is safe for concurrent use.
type Keeper struct {
	o       Options
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	changed broadcast.Broadcast

	devices devices

	assigning sync.Mutex // held while a volume is assigned to a pod

	mu   sync.Mutex
	pods map[types.UID]*Volumes // pods with mounts, started mounts, or unreadable records
}

// New returns a keeper. The caller calls Close.
func New(o Options) *Keeper {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	k := &Keeper{o: o, pods: map[types.UID]*Volumes{}, devices: devices{read: signature, held: map[device]chan struct{}{}}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Close stops background work and waits for it. Volumes stay mounted.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.stop()
	k.mu.Unlock()
	k.wg.Wait()
}

// background runs do in the background. Close waits for it. It returns false after Close.
func (k *Keeper) background(do func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return false
	}
	k.wg.Go(do)
	return true
}

// recordsDir is the subdirectory of a pod's directory with a record of each volume.
const recordsDir = "claims"

// Of returns the volumes of a pod with the directory dir, including those that an earlier process has recorded there.
func (k *Keeper) Of(pod *corev1.Pod, dir string) *Volumes {
	v := &Volumes{k: k, pod: pod, dir: filepath.Join(dir, recordsDir), op: make(chan struct{}, 1)}
	if err := v.read(); err != nil {
		k.o.Logger.Error("reading the records of a pod's volumes failed", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "error", err)
	}
	if len(v.known()) > 0 || v.readError() != nil {
		k.keep(v)
	}
	return v
}

func (k *Keeper) keep(v *Volumes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[v.pod.UID] = v
}

// drop forgets a pod without mounts.
func (k *Keeper) drop(v *Volumes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pods[v.pod.UID] == v {
		delete(k.pods, v.pod.UID)
	}
}

// Changed retries the volumes that pods wait for.
func (k *Keeper) Changed() { k.changed.Notify() }

func (k *Keeper) all() (all []*Volumes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range k.pods {
		all = append(all, v)
	}
	return all
}

// errUsed is returned to the second pod of a ReadWriteOncePod claim.
var errUsed = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// assign records that a pod has a volume. It fails for a ReadWriteOncePod volume that another pod has.
func (k *Keeper) assign(v *Volumes, name string, r record) error {
	k.assigning.Lock()
	defer k.assigning.Unlock()
	if r.PV != nil && onePod(r.PV) {
		if err := k.checkUnused(v.pod.UID, r.PV); err != nil {
			return err
		}
	}
	return v.save(name, r)
}

// checkUnused returns an error for a PersistentVolume that a pod other than uid has.
func (k *Keeper) checkUnused(uid types.UID, pv *corev1.PersistentVolume) error {
	for _, v := range k.all() {
		if v.pod.UID == uid {
			continue
		}
		unknown := v.readError() != nil
		for _, r := range v.known() {
			unknown = unknown || r.damaged
			if r.PV != nil && r.PV.UID == pv.UID {
				return errUsed
			}
		}
		if unknown { // it may have this volume
			return fmt.Errorf("%w, perhaps: the volumes of pod %s/%s are not known", errUsed, v.pod.Namespace, v.pod.Name)
		}
	}
	return nil
}
