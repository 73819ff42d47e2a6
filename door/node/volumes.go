package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/node/storage/claims"
	"github.com/bulkhead-project/bulkhead/door/node/storage/csi"
	"github.com/bulkhead-project/bulkhead/volume"
)

// openClaims creates the keeper of the pods' claims before any pod is adopted. A node without an API server has a
// keeper as well, for pods of an earlier process.
func (n *node) openClaims() error {
	o := claims.Options{Client: n.client, Node: n.registered, Places: n.runtime.Backend().Places, Logger: n.o.Logger}
	if n.o.RootDir != "" && n.client != nil {
		var err error
		n.csi, err = csi.New(csi.Options{
			Root: n.o.RootDir, Dir: n.csiDir(), Client: n.client, Name: n.o.Name, Node: n.registered,
			Publish: n.publishStatus, InUse: n.inUse, Changed: func() { n.claims.Changed() }, Logger: n.o.Logger,
		})
		if err != nil {
			return err
		}
		o.CSI = n.csi
	}
	n.claims = claims.New(o)
	return nil
}

// csiDir returns the directory with the records of CSI volumes.
func (n *node) csiDir() string { return filepath.Join(n.o.Roots.Data, "node", "csi") }

// withoutDrivers returns the attached volumes that a node without drivers uses, which are none. If an earlier process
// has left records in dir, volumes may still be mounted. The result is then nil, which keeps the volumes that the
// earlier process reported.
func withoutDrivers(dir string) func() []corev1.UniqueVolumeName {
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return func() []corev1.UniqueVolumeName { return nil }
}

// closeClaims stops the work for claims. Volumes stay mounted.
func (n *node) closeClaims() {
	n.claims.Close()
	if n.csi != nil {
		if err := n.csi.Close(); err != nil {
			n.o.Logger.Error("closing the CSI drivers failed", "error", err)
		}
	}
}

// publishStatus publishes the node's status now.
func (n *node) publishStatus() {
	if k := n.kept.Load(); k != nil {
		k.Measure()
	}
}

// drivers unmounts volumes that belong to no pod, then serves CSI drivers until ctx ends.
func (n *node) drivers(ctx context.Context) {
	if n.csi == nil {
		return
	}
	n.csi.Sweep(n.runner.Has)
	if err := n.csi.Run(ctx); err != nil {
		n.o.Logger.Error("the node no longer serves CSI drivers", "error", err)
	}
}

// registered returns the Node as the API server has it, or nil before the registration.
func (n *node) registered() *corev1.Node {
	if k := n.kept.Load(); k != nil {
		return k.Node()
	}
	return nil
}

// inUse reports whether the API server has confirmed that the node uses a volume.
func (n *node) inUse(name corev1.UniqueVolumeName) bool {
	k := n.kept.Load()
	return k != nil && k.InUse(name)
}

// claimsOf returns the claims of one pod.
func (n *node) claimsOf(p *corev1.Pod, dir string) volume.Claims { return n.claims.Of(p, dir) }
