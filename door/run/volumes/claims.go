package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Need checks the claims of the pods of a request and creates the missing volumes. It returns the names of the new
// ones. The volumes stay until done is called, because the pods that name them are not added yet.
func (s *Service) Need(
	ctx context.Context, pods []*corev1.Pod, names []string, claims []*corev1.PersistentVolumeClaim,
) (made []string, done func(), err error) {
	coming := slices.Clone(names)
	for _, claim := range claims {
		coming = append(coming, volume.NameOf(claim.Namespace, claim.Name))
	}
	all := slices.Clone(coming)
	for _, p := range pods {
		all = append(all, volume.Names(p)...)
	}
	if done, err = s.naming.Want(ctx, all); err != nil {
		return nil, nil, err
	}
	if err = s.checkClaims(pods, names, coming); err == nil {
		made, err = s.claimed(ctx, names, claims)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return made, done, nil
}

// claimed creates the missing volumes of a request: first those of its claims, then those in names. It grows an
// existing volume of a claim if the volume is too small. It returns the names of the new volumes.
func (s *Service) claimed(ctx context.Context, names []string, claims []*corev1.PersistentVolumeClaim) (made []string, err error) {
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
		switch _, err := s.Volumes.Create(ctx, named.Volume{Name: name, Kind: named.Disk}); {
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
func (s *Service) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (made string, err error) {
	want := volumeOf(claim)
	have, err := s.Volumes.Create(ctx, want)
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
		_, err := s.Engine.GrowVolume(ctx, want.Name, want.Bytes)
		if errors.Is(err, named.ErrSize) { // another request may have grown the volume further meanwhile
			if now, again := s.Volumes.Get(want.Name); again == nil && now.Bytes >= want.Bytes {
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

// checkClaims refuses pods with claims that have neither an existing volume nor one of those to come. given are the
// names that the user gave.
func (s *Service) checkClaims(pods []*corev1.Pod, given, coming []string) error {
	for _, p := range pods {
		for _, v := range p.Spec.Volumes {
			claim := v.PersistentVolumeClaim
			if claim == nil {
				continue
			}
			if err := checkClaimName(claim.ClaimName, given); err != nil {
				return fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
			}
			name := volume.NameOf(p.Namespace, claim.ClaimName)
			if slices.Contains(coming, name) {
				continue
			}
			if _, err := s.Volumes.Get(name); errors.Is(err, named.ErrNotFound) || errors.Is(err, named.ErrName) {
				return errclass.New(errdefs.ErrNotFound, "pod %s/%s: persistentvolumeclaim %q not found: "+
					"add it to the file, or create its volume (bulkhead volume create %s)", p.Namespace, p.Name, claim.ClaimName, name)
			} else if err != nil {
				return err
			}
		}
	}
	return nil
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
