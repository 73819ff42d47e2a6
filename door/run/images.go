package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

func (s *server) listImages(r *http.Request) (any, error) {
	from, err := s.imagesFor(r)
	if err != nil {
		return nil, err
	}
	list, err := from.List()
	if err != nil {
		return nil, err
	}
	images := []api.Image{}
	for _, i := range list {
		images = append(images, *apiImage(i))
	}
	return images, nil
}

func apiImage(i image.Image) *api.Image {
	a := &api.Image{ID: i.ID, Names: i.Names, Size: i.Size, Created: i.Created}
	if len(i.Digests) > 0 {
		a.Digest = i.Digests[0]
	}
	return a
}

func (s *server) pullImage(r *http.Request, out send) error {
	req, err := decode[api.PullRequest](r)
	if err != nil {
		return err
	}
	images, err := s.imagesFor(r)
	if err != nil {
		return err
	}
	return fetch(r.Context(), req.Image, out, func(ctx context.Context, o image.PullOptions) (image.Image, error) {
		o.Insecure = req.Insecure
		return images.Pull(ctx, req.Image, o)
	})
}

func (s *server) loadImage(r *http.Request, out send) error {
	req, err := decode[api.LoadRequest](r)
	if err != nil {
		return err
	}
	images, err := s.imagesFor(r)
	if err != nil {
		return err
	}
	return fetch(r.Context(), req.Source, out, func(ctx context.Context, o image.PullOptions) (image.Image, error) {
		return images.Load(ctx, req.Source, req.Name, o)
	})
}

func (s *server) tagImage(r *http.Request) (any, error) {
	req, err := decode[api.TagRequest](r)
	if err != nil {
		return nil, err
	}
	images, err := s.imagesFor(r)
	if err != nil {
		return nil, err
	}
	return api.Result{}, listed(images.Tag(r.Context(), req.Image, req.Names))
}

func (s *server) saveImage(r *http.Request) (any, error) {
	req, err := decode[api.SaveRequest](r)
	if err != nil {
		return nil, err
	}
	images, err := s.imagesFor(r)
	if err != nil {
		return nil, err
	}
	return api.Result{}, listed(images.Save(r.Context(), req.Image, req.Path, req.Format))
}

// fetch pulls or loads an image and sends the progress.
func fetch(ctx context.Context, name string, out send, get func(context.Context, image.PullOptions) (image.Image, error)) error {
	box := newOutbox()
	type result struct {
		img image.Image
		err error
	}
	got := make(chan result, 1)
	go func() {
		img, err := get(ctx, image.PullOptions{
			Progress: func(p image.Progress) { box.add(api.Message{Progress: progress(name, p)}) },
		})
		got <- result{img, err}
	}()
	var gone error
	for {
		select {
		case <-box.wake:
			for _, m := range box.drain() {
				if gone == nil {
					gone = out(m)
				}
			}
		case res := <-got:
			if res.err != nil {
				return res.err
			}
			return out(api.Message{Image: apiImage(res.img)})
		}
	}
}

func (s *server) removeImage(r *http.Request) (any, error) {
	ref := r.PathValue("ref")
	images, err := s.imagesFor(r)
	if err != nil {
		return nil, err
	}
	return api.Result{}, s.usedBy(ref, listed(images.Remove(r.Context(), ref, image.RemoveOptions{})))
}

// usedBy adds the names of the pods that use an image to its removal error, which has only their sandboxes.
func (s *server) usedBy(ref string, err error) error {
	used, is := errors.AsType[*image.InUseError](err)
	if !is {
		return err
	}
	var pods, names []string
	for _, sandbox := range used.Sandboxes {
		if p, err := s.pods.Find(sandbox); err == nil {
			pods, names = append(pods, p.Key()), append(names, p.Name())
		}
	}
	if len(pods) < len(used.Sandboxes) { // pods of other doors or instances
		return fmt.Errorf("%w (bulkhead ps --all-instances -o wide shows sandboxes)", err)
	}
	return errclass.New(image.ErrInUse, "remove image %s: it is in use by pod %s (bulkhead rm -f %s removes the pod)",
		ref, strings.Join(pods, ", "), strings.Join(names, " "))
}

func (s *server) login(r *http.Request) (any, error) {
	req, err := decode[api.LoginRequest](r)
	if err != nil {
		return nil, err
	}
	getenv, err := s.environment(r)
	if err != nil {
		return nil, err
	}
	if req.Logout {
		return api.Result{}, image.Logout(getenv, req.Registry)
	}
	return api.Result{}, image.Login(r.Context(), getenv, req.Registry, req.Username, req.Password, req.Insecure)
}

// listed adds a hint to the error for a missing image.
func listed(err error) error {
	if errors.Is(err, image.ErrNotFound) {
		err = fmt.Errorf("%w: bulkhead image ls lists the images", err)
	}
	return err
}

// puller is the engine's image service. It also sends the progress of pulls to the client that follows the pod.
type puller struct {
	internalapi.ImageManagerService
	images func(name string) *image.Store
	log    *outbox
}

// PullImage pulls an image with the user's credentials.
func (p puller) PullImage(
	ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	var own *image.Auth
	if auth.GetUsername() != "" {
		own = &image.Auth{Username: auth.GetUsername(), Password: auth.GetPassword()}
	}
	img, err := p.images(spec.GetUserSpecifiedImage()).Pull(ctx, spec.GetImage(), image.PullOptions{
		Auth:     own,
		Progress: func(g image.Progress) { p.log.add(api.Message{Progress: progress(spec.GetImage(), g)}) },
	})
	return img.ID, err
}

// ImageStatus looks up an image by name in the environment of the pod's command. A name without an image may be an
// id or a prefix of one.
func (p puller) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	written := spec.GetUserSpecifiedImage()
	store := p.images(written)
	img, err := store.Resolve(spec.GetImage())
	if errors.Is(err, image.ErrNotFound) && written != "" {
		img, err = store.Resolve(written)
	}
	if errors.Is(err, image.ErrAmbiguous) {
		return nil, err
	}
	if err == nil {
		spec = &runtimeapi.ImageSpec{Image: img.ID, UserSpecifiedImage: written}
	}
	return p.ImageManagerService.ImageStatus(ctx, spec, verbose)
}

func progress(name string, g image.Progress) *api.Progress {
	state := "pulling"
	if g.Done {
		state = "done"
	}
	return &api.Progress{Image: name, Blob: g.Digest, Total: g.Total, Done: g.Offset, State: state}
}
