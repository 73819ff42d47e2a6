package object

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// use is the last report of the volumes in use. It is guarded by Keeper.mu.
type use struct {
	// known is set if reported is the API server's last answer and no later patch has an unknown outcome.
	known    bool
	reported []corev1.UniqueVolumeName
	node     types.UID // the Node that received the report
}

// InUse reports whether the API server has confirmed that the Node lists the volume as in use, and no patch since then
// removes it. It does not ask the watch, which may be late. The caller adds the volume to Options.InUse first.
func (k *Keeper) InUse(name corev1.UniqueVolumeName) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.use.reported, name)
}

// next returns the volumes in use to report. must means that they must be reported even if the watch shows the same
// list. Volumes that leave the list count as unreported at once, so InUse never relies on an entry that the next patch
// removes.
func (k *Keeper) next(node *corev1.Node) (names []corev1.UniqueVolumeName, must bool) {
	if k.o.InUse == nil {
		return node.Status.VolumesInUse, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if node.UID != k.use.node {
		k.use = use{node: node.UID}
	}
	names = k.o.InUse()
	must = !k.use.known || !slices.Equal(k.use.reported, names)
	k.use.reported = slices.DeleteFunc(slices.Clone(k.use.reported), func(n corev1.UniqueVolumeName) bool {
		return !slices.Contains(names, n)
	})
	return names, must
}

// sends notes that the outcome of a patch is unknown until answered is called.
func (k *Keeper) sends() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.use.known = false
}

// answered stores the API server's answer to a patch.
func (k *Keeper) answered(node *corev1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.use = use{known: true, reported: node.Status.VolumesInUse, node: node.UID}
}
