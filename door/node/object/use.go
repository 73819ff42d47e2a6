package object

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// use is what the API server was told of the volumes in use. It is guarded by Keeper.mu.
type use struct {
	// known: told is the last answer of the API server, and no later patch has an unknown outcome.
	known bool
	told  []corev1.UniqueVolumeName
	node  types.UID // the Node that was told
}

// InUse tells whether the API server has answered that the Node says that the volume is in use, and whether no patch since then
// takes that back. The watch may be late and is not asked. A caller adds the volume to Options.InUse first.
func (k *Keeper) InUse(name corev1.UniqueVolumeName) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.use.told, name)
}

// next is what to tell of the volumes in use, and whether that must be told although the watch may say the same. What is not
// to be told any more counts as not told from now on: InUse never relies on what the next patch takes back.
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
	must = !k.use.known || !slices.Equal(k.use.told, names)
	k.use.told = slices.DeleteFunc(slices.Clone(k.use.told), func(n corev1.UniqueVolumeName) bool { return !slices.Contains(names, n) })
	return names, must
}

// sends notes that the outcome of a patch is not known until answered.
func (k *Keeper) sends() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.use.known = false
}

// answered notes what the API server answered to a patch.
func (k *Keeper) answered(node *corev1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.use = use{known: true, told: node.Status.VolumesInUse, node: node.UID}
}
