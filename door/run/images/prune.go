package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

func (s *Service) prune(r *http.Request) (any, error) {
	var p api.Pruned
	err := s.Prune(r.Context(), r.URL.Query().Get("all") == "true", &p)
	return p, err
}

// Prune removes images that no pod uses: those without a name, or with all every one.
func (s *Service) Prune(ctx context.Context, all bool, p *api.Pruned) error {
	list, err := s.Store.List()
	if err != nil {
		return err
	}
	used := s.used()
	for _, img := range list {
		if used[img.ID] || len(img.Names) > 0 && !all {
			continue
		}
		err := s.Store.Remove(ctx, img.ID, image.RemoveOptions{})
		if errors.Is(err, image.ErrInUse) || errors.Is(err, image.ErrNotFound) {
			continue
		}
		if err != nil {
			if err := p.Skip(ctx, fmt.Errorf("image %s: %w", img.ID, err)); err != nil {
				return err
			}
			continue
		}
		name := img.ID
		if len(img.Names) > 0 {
			name = img.Names[0]
		}
		p.Images = append(p.Images, name)
		p.Bytes += img.Size
	}
	return nil
}

// used returns the ids of the images that pods name. Ended pods count, because they can be started again.
func (s *Service) used() map[string]bool {
	used := map[string]bool{}
	for _, e := range s.Pods.All() {
		for _, name := range Names(e.Spec()) {
			if img, err := s.Of(e, name).Resolve(name); err == nil {
				used[img.ID] = true
			}
		}
	}
	return used
}

// Names returns the images that a pod names.
func Names(p *corev1.Pod) (names []string) {
	for c := range podspec.Every(&p.Spec) {
		names = append(names, c.Image)
	}
	for _, v := range p.Spec.Volumes {
		if v.Image != nil {
			names = append(names, v.Image.Reference)
		}
	}
	return names
}

// Share returns the disk usage of all images.
func (s *Service) Share(context.Context) (api.DiskShare, error) {
	share := api.DiskShare{Type: "Images"}
	list, err := s.Store.List()
	used := s.used()
	for _, img := range list {
		share.Add(img.Size, used[img.ID])
	}
	return share, err
}
