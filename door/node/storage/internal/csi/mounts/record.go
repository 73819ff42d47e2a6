package mounts

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
)

// phase is the progress of a pod's volume. It is recorded before the call that leads to the next phase. A failed call
// may have had its effect, whatever its error says, and undoing a call without effect is harmless. A failure therefore
// never lowers the phase.
type phase int

const (
	begun      phase = iota // no driver has been called
	staging                 // NodeStageVolume may have been called
	staged                  // NodeStageVolume has succeeded
	publishing              // NodePublishVolume may have been called
	published               // NodePublishVolume has succeeded
)

// record describes a pod's volume: everything needed to undo its steps and to repeat them. It has the names of Secrets,
// but no secret data.
type record struct {
	UID            types.UID `json:"uid"`
	Volume         string    `json:"volume"`
	Namespace      string    `json:"namespace"`
	Pod            string    `json:"pod"`
	ServiceAccount string    `json:"serviceAccount"`
	// Spec is the name of the PersistentVolume, or of the volume in the pod. It is part of paths.
	Spec   string `json:"spec"`
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// Inline is set for a volume that lives as long as its pod.
	Inline bool `json:"inline,omitempty"`
	Block  bool `json:"block,omitempty"`
	// ReadOnly is set if the volume is, or will be, published read-only.
	ReadOnly      bool                              `json:"readOnly,omitempty"`
	FSType        string                            `json:"fsType,omitempty"`
	Options       []string                          `json:"options,omitempty"`
	Attributes    map[string]string                 `json:"attributes,omitempty"`
	Access        corev1.PersistentVolumeAccessMode `json:"access,omitempty"`
	Once          bool                              `json:"once,omitempty"` // one of its access modes is ReadWriteOnce
	StageSecret   *corev1.SecretReference           `json:"stageSecret,omitempty"`
	PublishSecret *corev1.SecretReference           `json:"publishSecret,omitempty"`
	Claim         *types.NamespacedName             `json:"claim,omitempty"`
	Group         *int64                            `json:"group,omitempty"`
	Always        bool                              `json:"always,omitempty"` // apply the group even if the top directory already has it

	// Root is the directory below which the volume is mounted, as configured when its mount started.
	Root string `json:"root"`
	// Attach is set if the volume is attached to the node. The node reports it in use while the record exists.
	Attach bool `json:"attach,omitempty"`
	// Boot is the boot in which Phase, Staged and Owned were true. Mounts of another boot are gone.
	Boot  string `json:"boot"`
	Phase phase  `json:"phase"`
	// Staged is set if the last NodeStageVolume has succeeded in this boot. Phase only says what must be undone.
	Staged bool `json:"staged,omitempty"`
	// Owned is set if the group has been applied, or the node is not responsible for it.
	Owned bool `json:"owned,omitempty"`
}

// key names a volume of a pod.
type key struct {
	uid    types.UID
	volume string
}

func (r *record) key() key { return key{r.UID, r.Volume} }

// id names the driver's volume, which several pods may use.
func (r *record) id() string { return r.Driver + "^" + r.Handle }

// safeName matches names that are safe as a part of a path.
var safeName = regexp.MustCompile(`^[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?$`)

// maxHandle limits a volume's handle, in bytes.
const maxHandle = 4096

// recordOf returns the record for a request.
func recordOf(q claims.Request) (*record, error) {
	r := &record{
		UID: q.Pod.UID, Volume: q.Volume, Namespace: q.Pod.Namespace, Pod: q.Pod.Name, ServiceAccount: q.Pod.Spec.ServiceAccountName,
		Block: q.Block, ReadOnly: q.ReadOnly, Group: q.FSGroup, Always: true,
	}
	if c := q.Pod.Spec.SecurityContext; c != nil && c.FSGroupChangePolicy != nil {
		r.Always = *c.FSGroupChangePolicy != corev1.FSGroupChangeOnRootMismatch
	}
	switch {
	case q.PV != nil && q.PV.Spec.CSI != nil:
		r.persistent(q.PV)
	case q.Inline != nil:
		r.inline(q.Inline)
	default:
		return nil, errors.New("the volume must have a CSI driver")
	}
	for _, part := range []string{string(r.UID), r.Volume, r.Spec, r.Driver} {
		if len(part) > 253 || !safeName.MatchString(part) {
			return nil, fmt.Errorf("%.300q must be a valid name of a pod, volume or driver", part)
		}
	}
	if r.Handle == "" || len(r.Handle) > maxHandle {
		return nil, fmt.Errorf("volume %s has a handle of %d bytes (must be 1 to 4096)", r.Spec, len(r.Handle))
	}
	return r, nil
}

func (r *record) persistent(pv *corev1.PersistentVolume) {
	source := pv.Spec.CSI
	r.Spec, r.Driver, r.Handle, r.FSType = pv.Name, source.Driver, source.VolumeHandle, source.FSType
	r.Options, r.Attributes = slices.Clone(pv.Spec.MountOptions), maps.Clone(source.VolumeAttributes)
	r.StageSecret, r.PublishSecret = source.NodeStageSecretRef, source.NodePublishSecretRef
	if r.Access = corev1.ReadWriteOnce; len(pv.Spec.AccessModes) > 0 {
		r.Access = pv.Spec.AccessModes[0]
	}
	r.Once = slices.ContainsFunc(pv.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadWriteOnce || m == corev1.ReadWriteOncePod
	})
	if ref := pv.Spec.ClaimRef; ref != nil {
		r.Claim = &types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	}
}

func (r *record) inline(source *corev1.CSIVolumeSource) {
	r.Inline, r.Once, r.Access = true, true, corev1.ReadWriteOnce
	r.Spec, r.Driver, r.Attributes = r.Volume, source.Driver, maps.Clone(source.VolumeAttributes)
	r.Handle = fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(r.UID)+r.Volume)))
	if source.FSType != nil {
		r.FSType = *source.FSType
	}
	r.ReadOnly = r.ReadOnly || source.ReadOnly != nil && *source.ReadOnly
	if ref := source.NodePublishSecretRef; ref != nil {
		r.PublishSecret = &corev1.SecretReference{Namespace: r.Namespace, Name: ref.Name}
	}
}

// same reports whether two records belong to one volume in the same form.
func (r *record) same(o *record) bool {
	return r.id() == o.id() && r.Spec == o.Spec && r.Block == o.Block && r.Inline == o.Inline
}

// The paths are a kubelet's. Drivers know them.

func (r *record) plugin() string { return filepath.Join(r.Root, "plugins", "kubernetes.io", "csi") }

// stagePath returns the path where the volume is staged.
func (r *record) stagePath() string {
	if r.Block {
		return filepath.Join(r.plugin(), "volumeDevices", "staging", r.Spec)
	}
	return filepath.Join(r.plugin(), r.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(r.Handle))), "globalmount")
}

// targetPath returns the path where the volume is published for a pod.
func (r *record) targetPath() string {
	if r.Block {
		return filepath.Join(r.plugin(), "volumeDevices", "publish", r.Spec, string(r.UID))
	}
	return filepath.Join(r.Root, "pods", string(r.UID), "volumes", "kubernetes.io~csi", r.Spec, "mount")
}

// file returns the path of a record. No part of the name contains a comma.
func (m *Mounter) file(k key) string {
	return filepath.Join(m.o.Dir, strings.Join([]string{string(k.uid), k.volume}, ",")+".json")
}
