package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/diskusage"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// inspectImage returns all details of an image.
func (s *server) inspectImage(r *http.Request) (any, error) {
	images, err := s.imagesFor(r)
	if err != nil {
		return nil, err
	}
	img, err := images.Resolve(r.PathValue("ref"))
	if err != nil {
		return nil, fmt.Errorf("%w: bulkhead image ls lists the images", err)
	}
	config, err := images.ConfigJSON(img.ID)
	if err != nil {
		return nil, err
	}
	return api.ImageDetail{Image: *apiImage(img), Digests: img.Digests, Pulled: img.Pulled, Config: config}, nil
}

// pruneImages removes images that no pod uses: those without a name, or with all every one.
func (s *server) pruneImages(r *http.Request) (any, error) {
	var p api.Pruned
	err := s.collectImages(r.Context(), r.URL.Query().Get("all") == "true", &p)
	return p, err
}

func (s *server) collectImages(ctx context.Context, all bool, p *api.Pruned) error {
	list, err := s.images.List()
	if err != nil {
		return err
	}
	used := s.usedImages()
	for _, img := range list {
		if used[img.ID] || len(img.Names) > 0 && !all {
			continue
		}
		err := s.images.Remove(ctx, img.ID, image.RemoveOptions{})
		if errors.Is(err, image.ErrInUse) || errors.Is(err, image.ErrNotFound) {
			continue
		}
		if err != nil {
			if err := stays(ctx, p, fmt.Errorf("image %s: %w", img.ID, err)); err != nil {
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

// stays records that something could not be removed, and the prune continues. It returns the error if the client
// has disconnected.
func stays(ctx context.Context, p *api.Pruned, err error) error {
	if ctx.Err() != nil {
		return err
	}
	p.Failed = append(p.Failed, err.Error())
	return nil
}

// usedImages returns the ids of the images that pods name. Ended pods count, because they can be started again.
func (s *server) usedImages() map[string]bool {
	used := map[string]bool{}
	for _, e := range s.all() {
		for _, name := range imageNames(e.Spec()) {
			if img, err := e.images(name).Resolve(name); err == nil {
				used[img.ID] = true
			}
		}
	}
	return used
}

// imageNames returns the images that a pod names.
func imageNames(p *corev1.Pod) (names []string) {
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

// prune removes ended pods, unused images, outdated templates, and with all also every idle template.
func (s *server) prune(r *http.Request) (any, error) {
	p := api.Pruned{}
	for _, e := range s.all() {
		if !e.HasEnded() {
			continue
		}
		size := s.podSize(e)
		if err := e.Remove(r.Context(), false); err != nil {
			if err := stays(r.Context(), &p, err); err != nil {
				return nil, err
			}
			continue
		}
		p.Pods = append(p.Pods, e.Key())
		p.Bytes += size
	}
	if err := s.collectImages(r.Context(), r.URL.Query().Get("all") == "true", &p); err != nil {
		return nil, err
	}
	if r.URL.Query().Get("volumes") == "true" {
		if err := s.collectVolumes(r.Context(), &p); err != nil {
			return nil, err
		}
	}
	all, err := s.engine.Templates(r.Context())
	if err != nil {
		return nil, err
	}
	idle := s.idleTemplates(r.Context())
	for _, t := range all {
		if !t.Old && (r.URL.Query().Get("all") != "true" || !idle(t)) {
			continue
		}
		if err := s.engine.RemoveTemplate(r.Context(), t.Key); err != nil {
			if err := stays(r.Context(), &p, err); err != nil {
				return nil, err
			}
			continue
		}
		p.Templates = append(p.Templates, t.Key)
		p.Bytes += t.Bytes
	}
	return p, nil
}

// idleTemplates returns a function that reports whether no running pod was cloned from a template. Such templates
// are built again for the next pod of their kind.
func (s *server) idleTemplates(ctx context.Context) func(engine.Template) bool {
	used := map[string]bool{}
	for _, p := range s.engine.Pods() {
		if facts, err := s.engine.Facts(ctx, p.ID); err == nil && facts.State != "stopped" {
			used[facts.Template] = true
		}
	}
	return func(t engine.Template) bool { return !used[t.Key] }
}

// diskUsage sums up the disk usage, and what prune would free.
func (s *server) diskUsage(r *http.Request) (any, error) {
	images, err := s.images.List()
	if err != nil {
		return nil, err
	}
	all, err := s.engine.Templates(r.Context())
	if err != nil {
		return nil, err
	}
	volumes, err := s.volumeShare(r.Context())
	if err != nil {
		return nil, err
	}
	used := s.usedImages()
	idle := s.idleTemplates(r.Context())
	var pods, imgs, templates api.DiskShare
	for _, e := range s.all() {
		size := s.podSize(e)
		pods.Total, pods.Bytes = pods.Total+1, pods.Bytes+size
		if e.HasEnded() {
			pods.Reclaimable += size
		} else {
			pods.Active++
		}
	}
	for _, img := range images {
		imgs.Total, imgs.Bytes = imgs.Total+1, imgs.Bytes+img.Size
		if used[img.ID] {
			imgs.Active++
		} else {
			imgs.Reclaimable += img.Size
		}
	}
	for _, t := range all {
		templates.Total, templates.Bytes = templates.Total+1, templates.Bytes+t.Bytes
		if t.Old || idle(t) {
			templates.Reclaimable += t.Bytes
		} else {
			templates.Active++
		}
	}
	pods.Type, imgs.Type, templates.Type = "Pods", "Images", "Templates"
	return []api.DiskShare{pods, imgs, templates, volumes}, nil
}

func (s *server) volumeShare(ctx context.Context) (share api.DiskShare, err error) {
	all, err := s.volumes.List()
	share.Type, share.Total = "Volumes", len(all)
	users := s.volumeUsers()
	for _, v := range all {
		used := s.volumes.Used(ctx, v)
		share.Bytes += used
		if len(users[v.Name]) > 0 {
			share.Active++
		} else {
			share.Reclaimable += used
		}
	}
	return share, err
}

// podSize returns the disk usage of a pod: its record, logs and scratch disk.
func (s *server) podSize(e *entry) int64 {
	size := diskusage.Of(e.Dir())
	if id := e.Sandbox(); id != "" {
		size += diskusage.Of(filepath.Join(s.roots.Data, "sandboxes", id))
	}
	return size
}
