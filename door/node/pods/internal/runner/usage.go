package runner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Usages returns the resource usage of the node's pods by UID. It leaves out pods with an unresponsive guest and pods
// of other owners.
func (r *Runner) Usages(ctx context.Context) (map[types.UID]usage.Pod, error) {
	list, err := r.usages(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for the usage of its pods: %w", err)
	}
	all := map[types.UID]usage.Pod{}
	for _, measured := range list {
		p := r.Get(types.UID(measured.Stats.GetAttributes().GetMetadata().GetUid()))
		if p == nil || all[p.UID()].Stats != nil && measured.Stats.GetAttributes().GetId() != p.Sandbox() {
			continue // of a replaced sandbox
		}
		all[p.UID()] = r.complete(p, measured)
	}
	return all, nil
}

func (r *Runner) usages(ctx context.Context) (all []usage.Pod, err error) {
	if r.o.Backend.Usages != nil {
		return r.o.Backend.Usages(ctx)
	}
	list, err := r.o.Backend.Runtime.ListPodSandboxStats(ctx, nil)
	for _, one := range list {
		all = append(all, usage.Pod{Stats: one})
	}
	return all, err
}

// complete adds the usage that the host measures, and drops volumes that the guest made up.
func (r *Runner) complete(p *manager.Pod, measured usage.Pod) usage.Pod {
	spec := p.Spec()
	out := usage.Pod{Stats: measured.Stats, Logs: map[string]usage.Files{}}
	for c := range podspec.All(&spec.Spec) {
		bytes, files := p.LogUsage(c.Name)
		out.Logs[c.Name] = usage.Files{Bytes: bytes, Inodes: files}
	}
	out.Volumes = r.hostVolumes(p, spec)
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		if v.EmptyDir == nil {
			continue
		}
		for _, one := range measured.Volumes {
			if one.Name == v.Name {
				one.Ephemeral = v.EmptyDir.Medium == corev1.StorageMediumDefault
				out.Volumes = append(out.Volumes, one)
				break
			}
		}
	}
	return out
}

// Claims returns the usage of the mounted claim volumes by claim. It does not ask guests.
func (r *Runner) Claims() map[types.NamespacedName]usage.Volume {
	all := map[types.NamespacedName]usage.Volume{}
	for _, p := range r.manager.All() {
		if p.HasEnded() {
			continue
		}
		for _, v := range r.hostVolumes(p, p.Spec()) {
			if v.Claim != "" {
				all[types.NamespacedName{Namespace: p.Original().Namespace, Name: v.Claim}] = v
			}
		}
	}
	return all
}

// hostVolumes returns the usage of a pod's volumes on the host, if known.
func (r *Runner) hostVolumes(p *manager.Pod, spec *corev1.Pod) (all []usage.Volume) {
	var places map[string]volume.Place
	if claims := p.Door().(*door).claims; claims != nil {
		places = claims.Places()
	}
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		if place, is := places[v.Name]; is {
			if one, ok := r.placeUsage(spec, v, place); ok {
				all = append(all, one)
			}
		}
	}
	return all
}

// placeUsage returns the usage that a volume's driver reports, or else the usage of the file system with the volume's
// directory. The usage of a block device or disk is unknown without its driver. The directory of an unmounted driver
// volume is on one of the host's file systems, so it does not count.
func (r *Runner) placeUsage(pod *corev1.Pod, v *corev1.Volume, at volume.Place) (out usage.Volume, ok bool) {
	if r.o.VolumeUse != nil {
		out, ok = r.o.VolumeUse(pod.UID, v.Name)
	}
	absent := r.o.VolumeAbsent != nil && r.o.VolumeAbsent(pod.UID, v.Name)
	if !ok && !absent && !at.Block && !at.Disk {
		out, ok = r.systems.Of(at.Path)
	}
	out.Name = v.Name
	switch {
	case v.PersistentVolumeClaim != nil:
		out.Claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		out.Claim = pod.Name + "-" + v.Name // the name that the ephemeral volume controller uses
	}
	return out, ok
}
