package claims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/volume"
)

// request is what a driver is asked for.
func (v *Volumes) request(name string, r record) Request {
	q := Request{Pod: v.pod, Volume: name, PV: r.PV, Block: r.Block, ReadOnly: r.ReadOnly, FSGroup: fsGroup(v.pod)}
	for i := range v.pod.Spec.Volumes {
		if one := &v.pod.Spec.Volumes[i]; one.Name == name && r.PV == nil {
			q.Inline = one.CSI
		}
	}
	return q
}

// errNoDrivers is why a volume of a CSI driver waits.
var errNoDrivers = errors.New("there are no CSI drivers on this node")

// place has a volume that was resolved be a place of the host.
func (v *Volumes) place(ctx context.Context, name string, r record) (Place, error) {
	switch {
	case r.ofDriver() && v.k.o.CSI == nil:
		return Place{}, errNoDrivers
	case r.ofDriver():
		place, err := v.k.o.CSI.Mount(ctx, v.request(name, r))
		place.ReadOnly = place.ReadOnly || r.ReadOnly
		return place, err
	case r.PV.Spec.HostPath != nil:
		return v.hostPath(ctx, r)
	case r.PV.Spec.Local != nil:
		return v.local(ctx, name, r)
	}
	return Place{}, fmt.Errorf("PersistentVolume %s is of kind %s, which this node does not mount", r.PV.Name, kindOf(r.PV))
}

// kindOf names the kind of a PersistentVolume, as its specification does.
func kindOf(pv *corev1.PersistentVolume) string {
	source := reflect.ValueOf(pv.Spec.PersistentVolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "unknown"
}

// hostPath finds a PersistentVolume that is a path of the host to be what its type says. Without a type a directory is made
// if there is nothing, as for a hostPath of a pod. As with a kubelet, nothing of it is given to the pod's fsGroup.
func (v *Volumes) hostPath(ctx context.Context, r record) (Place, error) {
	source := r.PV.Spec.HostPath
	if r.Block {
		return Place{}, errors.New("a hostPath cannot be of volumeMode Block")
	}
	if err := volume.PrepareHostPath(ctx, v.k.o.Places, source); err != nil {
		return Place{}, err
	}
	missing := place.Fail
	if source.Type == nil || *source.Type == corev1.HostPathUnset {
		missing = place.MakeDir
	}
	p, err := v.k.o.Places.Open(ctx, source.Path, place.How{Missing: missing})
	if err != nil {
		return Place{}, err
	}
	p.Close()
	return Place{Path: source.Path, ReadOnly: r.ReadOnly}, nil
}

// local finds a local PersistentVolume to be a directory, or a block device. A directory is the pod's fsGroup's, as with a
// kubelet; what is on a device is given by the VM.
func (v *Volumes) local(ctx context.Context, name string, r record) (Place, error) {
	path := r.PV.Spec.Local.Path
	if r.Block {
		node, err := place.Look(ctx, path)
		if err == nil && !node.IsBlock() {
			err = fmt.Errorf("%s must be a block device", path)
		}
		return Place{Path: path, Block: true, ReadOnly: r.ReadOnly}, err
	}
	if node, err := place.Look(ctx, path); err == nil && node.IsBlock() {
		return v.disk(ctx, r)
	}
	p, err := v.k.o.Places.Open(ctx, path, place.How{})
	if err != nil {
		return Place{}, err
	}
	defer p.Close()
	if !p.Directory {
		return Place{}, fmt.Errorf("path %q is invalid, only directories and block devices are supported", path)
	}
	// Once for each pod, not for each VM of it. Who is not root has pods that know no other group.
	if group := fsGroup(v.pod); group != nil && r.Place == nil && !r.ReadOnly && os.Geteuid() == 0 {
		change := v.pod.Spec.SecurityContext.FSGroupChangePolicy
		err := guesttree.GiveAt(ctx, p.File, int(*group), change == nil || *change != corev1.FSGroupChangeOnRootMismatch)
		switch {
		case errors.Is(err, guesttree.ErrBounds), errors.Is(err, guesttree.ErrKept): // as with a kubelet the pod goes on
			v.k.o.Logger.Warn("some files of a volume keep their group", "volume", name, "group", *group, "error", err)
		case err != nil:
			return Place{}, fmt.Errorf("give the volume to group %d: %w", *group, err)
		}
	}
	return Place{Path: path, ReadOnly: r.ReadOnly}, nil
}
