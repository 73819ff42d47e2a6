package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/volume"
)

// claimed creates the missing volumes of a request: first those of its claims, then those in names. It grows an
// existing volume of a claim if the volume is too small. It returns the names of the new volumes.
func (s *server) claimed(ctx context.Context, names []string, claims []*corev1.PersistentVolumeClaim) (made []string, err error) {
	for _, claim := range claims {
		name, err := s.claim(ctx, claim)
		if err != nil {
			return nil, fmt.Errorf("persistentvolumeclaim %q: %w", claim.Name, err)
		}
		if name != "" {
			made = append(made, name)
		}
	}
	for _, name := range names {
		switch _, err := s.volumes.Create(ctx, named.Volume{Name: name, Kind: named.Disk}); {
		case errors.Is(err, named.ErrExists):
		case err != nil:
			return nil, err
		default:
			made = append(made, name)
		}
	}
	return made, nil
}

// claim creates a claim's volume or uses the existing one. It returns the name of a new volume, and "" for an
// existing one.
func (s *server) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (made string, err error) {
	want := volumeOf(claim)
	have, err := s.volumes.Create(ctx, want)
	switch {
	case err == nil:
		return want.Name, nil
	case !errors.Is(err, named.ErrExists):
		return "", err
	case have.Damage != "":
		return "", fmt.Errorf("volume %s: %w: it is damaged: %s", have.Name, named.ErrInvalid, have.Damage)
	case have.Kind != want.Kind:
		return "", errclass.New(errdefs.ErrConflict, "volume %s exists as %s, but the claim asks for %s",
			have.Name, kindText(have.Kind), kindText(want.Kind))
	case have.Bytes < want.Bytes:
		_, err := s.grow(ctx, want.Name, want.Bytes)
		if errors.Is(err, named.ErrSize) { // another request may have grown the volume further meanwhile
			if now, again := s.volumes.Get(want.Name); again == nil && now.Bytes >= want.Bytes {
				err = nil
			}
		}
		if err != nil {
			return "", fmt.Errorf("it asks for %d bytes: %w", want.Bytes, err)
		}
	}
	return "", nil
}

func kindText(k named.Kind) string {
	switch k {
	case named.Shared:
		return "a shared directory"
	case named.Block:
		return "a disk without a file system"
	}
	return "a disk for one pod at a time"
}

// volumeOf returns the volume that a claim asks for.
func volumeOf(claim *corev1.PersistentVolumeClaim) named.Volume {
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	v := named.Volume{
		Name: volume.NameOf(claim.Namespace, claim.Name), Kind: named.Disk, Bytes: size.Value(),
		Labels: claim.Labels, Claim: claim.Namespace + "/" + claim.Name,
	}
	if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		v.Kind = named.Block
	}
	for _, mode := range claim.Spec.AccessModes {
		v.Modes = append(v.Modes, string(mode))
		if mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany {
			v.Kind = named.Shared
		}
	}
	return v
}

// checkClaims refuses pods with claims that have neither an existing volume nor one that the request creates.
func (s *server) checkClaims(pods []newPod, req api.RunRequest, claims []*corev1.PersistentVolumeClaim) error {
	coming := createdVolumes(req, claims)
	for _, p := range pods {
		for _, v := range p.Pod.Spec.Volumes {
			claim := v.PersistentVolumeClaim
			if claim == nil {
				continue
			}
			if err := checkClaimName(claim.ClaimName, req.Volumes); err != nil {
				return fmt.Errorf("pod %s/%s: %w", p.Pod.Namespace, p.Pod.Name, err)
			}
			name := volume.NameOf(p.Pod.Namespace, claim.ClaimName)
			if slices.Contains(coming, name) {
				continue
			}
			if _, err := s.volumes.Get(name); errors.Is(err, named.ErrNotFound) || errors.Is(err, named.ErrName) {
				return errclass.New(errdefs.ErrNotFound, "pod %s/%s: persistentvolumeclaim %q not found: "+
					"add it to the file, or create its volume (bulkhead volume create %s)", p.Pod.Namespace, p.Pod.Name, claim.ClaimName, name)
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// createdVolumes returns the volumes that a request creates if they are missing.
func createdVolumes(req api.RunRequest, claims []*corev1.PersistentVolumeClaim) []string {
	names := slices.Clone(req.Volumes)
	for _, claim := range claims {
		names = append(names, volume.NameOf(claim.Namespace, claim.Name))
	}
	return names
}

// volumesOf returns all volumes that a request names.
func volumesOf(pods []newPod, req api.RunRequest, claims []*corev1.PersistentVolumeClaim) []string {
	names := createdVolumes(req, claims)
	for _, p := range pods {
		names = append(names, volume.Names(p.Pod)...)
	}
	return names
}

// checkClaimName refuses names with an underscore, because these are volumes of claims in other namespaces. No
// claim's name has an underscore. Names that the user gave with -v are allowed.
func checkClaimName(name string, given []string) error {
	if !strings.Contains(name, "_") || slices.Contains(given, name) {
		return nil
	}
	return errclass.New(errdefs.ErrInvalidArgument, "persistentvolumeclaim %q: a claim's name must not have an underscore, which marks "+
		"volumes of other namespaces; to use a volume with such a name, use bulkhead run -v", name)
}
