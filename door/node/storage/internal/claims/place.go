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

// request returns the request to a driver for a volume.
func (v *Volumes) request(name string, r record) Request {
	q := Request{Pod: v.pod, Volume: name, PV: r.PV, Block: r.Block, ReadOnly: r.ReadOnly, FSGroup: fsGroup(v.pod)}
	for i := range v.pod.Spec.Volumes {
		if one := &v.pod.Spec.Volumes[i]; one.Name == name && r.PV == nil {
			q.Inline = one.CSI
		}
	}
	return q
}

// errNoDrivers is returned for a volume of a CSI driver on a node without drivers.
var errNoDrivers = errors.New("there are no CSI drivers on this node")

// place makes a resolved volume available and returns its place.
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

// kindOf returns the kind of a PersistentVolume, as in its specification.
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

// hostPath checks that a PersistentVolume's path on the host has the required type. Without a type it creates a missing
// directory, as for a hostPath of a pod. It does not apply the pod's fsGroup, like a kubelet.
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
	p, err := v.k.o.Places.Open(ctx, source.Path, place.OpenOptions{Missing: missing})
	if err != nil {
		return Place{}, err
	}
	p.Close()
	return Place{Path: source.Path, ReadOnly: r.ReadOnly}, nil
}

// local checks that a local PersistentVolume is a directory or a block device. It applies the pod's fsGroup to a
// directory, as a kubelet does; the VM applies it to the files on a device.
func (v *Volumes) local(ctx context.Context, name string, r record) (Place, error) {
	path := r.PV.Spec.Local.Path
	if r.Block {
		node, err := place.Stat(ctx, path)
		if err == nil && !node.IsBlock() {
			err = fmt.Errorf("%s must be a block device", path)
		}
		return Place{Path: path, Block: true, ReadOnly: r.ReadOnly}, err
	}
	if node, err := place.Stat(ctx, path); err == nil && node.IsBlock() {
		return v.disk(ctx, r)
	}
	p, err := v.k.o.Places.Open(ctx, path, place.OpenOptions{})
	if err != nil {
		return Place{}, err
	}
	defer p.Close()
	if !p.Directory {
		return Place{}, fmt.Errorf("path %q is invalid, only directories and block devices are supported", path)
	}
	// This runs once for each pod, not for each VM. Pods of an ordinary user can have no other group.
	if group := fsGroup(v.pod); group != nil && r.Place == nil && !r.ReadOnly && os.Geteuid() == 0 {
		change := v.pod.Spec.SecurityContext.FSGroupChangePolicy
		err := guesttree.ChownAt(ctx, p.File, int(*group), change == nil || *change != corev1.FSGroupChangeOnRootMismatch)
		switch {
		case errors.Is(err, guesttree.ErrBounds), errors.Is(err, guesttree.ErrKept): // the pod continues, as with a kubelet
			v.k.o.Logger.Warn("some files of a volume keep their group", "volume", name, "group", *group, "error", err)
		case err != nil:
			return Place{}, fmt.Errorf("give the volume to group %d: %w", *group, err)
		}
	}
	return Place{Path: path, ReadOnly: r.ReadOnly}, nil
}
