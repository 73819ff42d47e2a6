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

	"github.com/bulkhead-project/bulkhead/door/node/claims"
)

// phase is how far a volume of a pod is. It is written down before the call that leads to the next one. A call that fails may
// have had its effect, whatever its error says, and its inverse harms nothing that is not there: no failure takes a phase back.
type phase int

const (
	begun      phase = iota // no driver was called
	staging                 // NodeStageVolume was or will be called
	staged                  // and has succeeded
	publishing              // NodePublishVolume was or will be called
	published               // and has succeeded
)

// record is a volume of a pod: all that is needed to undo what was done for it, and to do it again. It has the names of
// Secrets, and nothing that they hold.
type record struct {
	UID            types.UID `json:"uid"`
	Volume         string    `json:"volume"`
	Namespace      string    `json:"namespace"`
	Pod            string    `json:"pod"`
	ServiceAccount string    `json:"serviceAccount"`
	// Spec is the name of the PersistentVolume, or of the volume in the pod. Paths have it.
	Spec   string `json:"spec"`
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	// Inline says that the volume lives with its pod.
	Inline bool `json:"inline,omitempty"`
	Block  bool `json:"block,omitempty"`
	// ReadOnly says how the volume is published, or is to be.
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
	Always        bool                              `json:"always,omitempty"` // the group gets it also if it seems to have it

	// Root is the directory below which the volume is mounted: that of the node which began it.
	Root string `json:"root"`
	// Attach says that the volume is attached to the node, which tells that it uses it for as long as there is a record.
	Attach bool `json:"attach,omitempty"`
	// Boot is the host's boot in which Phase, Staged and Owned were true. What was mounted in another one is not.
	Boot  string `json:"boot"`
	Phase phase  `json:"phase"`
	// Staged says that the last NodeStageVolume has succeeded, in this boot. Phase tells what is to be undone, and says no such thing.
	Staged bool `json:"staged,omitempty"`
	// Owned says that the volume is the group's, or is not the node's to give.
	Owned bool `json:"owned,omitempty"`
}

// key names a volume of a pod.
type key struct {
	uid    types.UID
	volume string
}

func (r *record) key() key { return key{r.UID, r.Volume} }

// id names what the driver has, of which several pods may have a part.
func (r *record) id() string { return r.Driver + "^" + r.Handle }

// safeName is what may be a part of a path.
var safeName = regexp.MustCompile(`^[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?$`)

// maxHandle bounds a volume's handle, in bytes.
const maxHandle = 4096

// recordOf makes the record of a request.
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

// same tells whether two records are of one volume in one form.
func (r *record) same(o *record) bool {
	return r.id() == o.id() && r.Spec == o.Spec && r.Block == o.Block && r.Inline == o.Inline
}

// The paths are a kubelet's, which drivers know.

func (r *record) plugin() string { return filepath.Join(r.Root, "plugins", "kubernetes.io", "csi") }

// stagePath is where a volume is staged.
func (r *record) stagePath() string {
	if r.Block {
		return filepath.Join(r.plugin(), "volumeDevices", "staging", r.Spec)
	}
	return filepath.Join(r.plugin(), r.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(r.Handle))), "globalmount")
}

// targetPath is where a volume is published for a pod.
func (r *record) targetPath() string {
	if r.Block {
		return filepath.Join(r.plugin(), "volumeDevices", "publish", r.Spec, string(r.UID))
	}
	return filepath.Join(r.Root, "pods", string(r.UID), "volumes", "kubernetes.io~csi", r.Spec, "mount")
}

// file is where the record lies. No part of a name has a comma.
func (m *Mounter) file(k key) string {
	return filepath.Join(m.o.Dir, strings.Join([]string{string(k.uid), k.volume}, ",")+".json")
}
