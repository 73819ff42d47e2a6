// Package storage provides the objects and the volumes of a node's pods. The packages below do the work. This one
// connects them.
package storage

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/pods"
	"github.com/bulkhead-project/bulkhead/door/node/registration"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/objects"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Options configure Storage. Client is nil without an API server. RootDir is a kubelet's root directory; empty disables
// CSI drivers. The others are required.
type Options struct {
	Client  kubernetes.Interface
	RootDir string
	// Dir is the directory with the records of CSI volumes.
	Dir string
	// Name is the name of the node. Node is its object.
	Name string
	Node *registration.Node
	// Places are the rules for host paths that pods cannot have.
	Places place.Rules
	// Wake is called with the UID of a pod when one of its objects has changed. It must not block.
	Wake   func(types.UID)
	Logger *slog.Logger
}

// Storage provides the objects and the volumes. It is safe for concurrent use.
type Storage struct {
	o       Options
	claims  *claims.Keeper
	csi     *csi.Plugin    // nil without drivers
	objects *objects.Cache // nil without an API server
}

// Open returns the Storage. Pods of an earlier process have claims also on a node without an API server. The caller
// calls Run once, and Close.
func Open(o Options) (s *Storage, err error) {
	s = &Storage{o: o}
	of := claims.Options{Client: o.Client, Node: o.Node.Node, Places: o.Places, Logger: o.Logger}
	if o.RootDir != "" && o.Client != nil {
		s.csi, err = csi.New(csi.Options{
			Root: o.RootDir, Dir: o.Dir, Client: o.Client, Name: o.Name, Node: o.Node.Node, Publish: o.Node.Measure, InUse: o.Node.InUse,
			Changed: func() { s.claims.Changed() }, Logger: o.Logger,
		})
		if err != nil {
			return nil, err
		}
		of.CSI = s.csi
		o.Node.ReportVolumes(s.csi.InUse, s.csi.NodeChanged, map[string]string{csi.Annotation: "true"})
	} else {
		o.Node.ReportVolumes(withoutDrivers(o.Dir), nil, nil)
	}
	s.claims = claims.New(of)
	if o.Client != nil {
		s.objects = objects.New(objects.Options{Client: o.Client, Wake: o.Wake, Logger: o.Logger})
	}
	return s, nil
}

// Close stops the work. Volumes stay mounted.
func (s *Storage) Close() {
	if s.objects != nil {
		s.objects.Close()
	}
	s.claims.Close()
	if s.csi != nil {
		if err := s.csi.Close(); err != nil {
			s.o.Logger.Error("closing the CSI drivers failed", "error", err)
		}
	}
}

// Run unmounts volumes that belong to no pod, then serves CSI drivers until ctx ends. has reports whether a pod exists.
func (s *Storage) Run(ctx context.Context, has func(types.UID) bool) {
	if s.csi == nil {
		return
	}
	s.csi.Sweep(has)
	if err := s.csi.Run(ctx); err != nil {
		s.o.Logger.Error("the node no longer serves CSI drivers", "error", err)
	}
}

// Provide sets the parts of h that provide storage to pods.
func (s *Storage) Provide(h *pods.Host) {
	h.Claims = func(p *corev1.Pod, dir string) volume.Claims { return s.claims.Of(p, dir) }
	if s.csi != nil {
		h.VolumeUse, h.VolumeAbsent = s.csi.Use, s.csi.Absent
	}
	h.Objects = none{}
	if s.objects != nil {
		h.Objects, h.Services, h.Handler = s.objects, s.objects.Services, s.objects.Handler
	}
}

// withoutDrivers returns the attached volumes that a node without drivers uses, which are none. If an earlier process
// has left records in dir, volumes may still be mounted. The result is then nil, which keeps the volumes that the
// earlier process reported.
func withoutDrivers(dir string) func() []corev1.UniqueVolumeName {
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return func() []corev1.UniqueVolumeName { return nil }
}
