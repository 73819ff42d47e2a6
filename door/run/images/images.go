// Package images answers the calls about images.
package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// Service answers the calls.
type Service struct {
	Store *image.Store // in the environment of the command that started the engine
	// Environment is the one of requests without their own.
	Environment api.Environment
	Pods        *manager.Manager
	// Of returns the store in the environment of the command that named an image of a pod.
	Of func(p *manager.Pod, name string) *image.Store
}

// Register adds the calls.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/images", calls.Answered(s.list))
	mux.HandleFunc("GET /v1/images/{ref...}", calls.Answered(s.inspect))
	mux.HandleFunc("DELETE /v1/images/{ref...}", calls.Answered(s.remove))
	mux.HandleFunc("POST /v1/images/load", calls.Streamed(s.load))
	mux.HandleFunc("POST /v1/images/prune", calls.Answered(s.prune))
	mux.HandleFunc("POST /v1/images/pull", calls.Streamed(s.pull))
	mux.HandleFunc("POST /v1/images/save", calls.With(s.save))
	mux.HandleFunc("POST /v1/images/tag", calls.With(s.tag))
	mux.HandleFunc("POST /v1/login", calls.With(s.login))
}

func (s *Service) list(r *http.Request) (any, error) {
	from, err := s.storeFor(r)
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

func (s *Service) pull(r *http.Request, out calls.Send) error {
	req, err := calls.Decode[api.PullRequest](r)
	if err != nil {
		return err
	}
	images, err := s.storeFor(r)
	if err != nil {
		return err
	}
	return fetch(r.Context(), req.Image, out, func(ctx context.Context, o image.PullOptions) (image.Image, error) {
		o.Insecure = req.Insecure
		return images.Pull(ctx, req.Image, o)
	})
}

func (s *Service) load(r *http.Request, out calls.Send) error {
	req, err := calls.Decode[api.LoadRequest](r)
	if err != nil {
		return err
	}
	images, err := s.storeFor(r)
	if err != nil {
		return err
	}
	return fetch(r.Context(), req.Source, out, func(ctx context.Context, o image.PullOptions) (image.Image, error) {
		return images.Load(ctx, req.Source, req.Name, o)
	})
}

func (s *Service) tag(r *http.Request, req api.TagRequest) (any, error) {
	images, err := s.storeFor(r)
	if err != nil {
		return nil, err
	}
	return api.Result{}, listed(images.Tag(r.Context(), req.Image, req.Names))
}

func (s *Service) save(r *http.Request, req api.SaveRequest) (any, error) {
	images, err := s.storeFor(r)
	if err != nil {
		return nil, err
	}
	return api.Result{}, listed(images.Save(r.Context(), req.Image, req.Path, req.Format))
}

// fetch pulls or loads an image and sends the progress.
func fetch(ctx context.Context, name string, out calls.Send, get func(context.Context, image.PullOptions) (image.Image, error)) error {
	box := calls.NewOutbox()
	type result struct {
		img image.Image
		err error
	}
	got := make(chan result, 1)
	go func() {
		img, err := get(ctx, image.PullOptions{
			Progress: func(p image.Progress) { box.Add(api.Message{Progress: progress(name, p)}) },
		})
		got <- result{img, err}
	}()
	var gone error
	for {
		select {
		case <-box.Wake():
			for _, m := range box.Drain() {
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

func (s *Service) remove(r *http.Request) (any, error) {
	ref := r.PathValue("ref")
	images, err := s.storeFor(r)
	if err != nil {
		return nil, err
	}
	return api.Result{}, s.usedBy(ref, listed(images.Remove(r.Context(), ref, image.RemoveOptions{})))
}

// usedBy adds the names of the pods that use an image to its removal error, which has only their sandboxes.
func (s *Service) usedBy(ref string, err error) error {
	used, is := errors.AsType[*image.InUseError](err)
	if !is {
		return err
	}
	var pods, names []string
	for _, sandbox := range used.Sandboxes {
		if p, err := s.Pods.Find(sandbox); err == nil {
			pods, names = append(pods, p.Key()), append(names, p.Name())
		}
	}
	if len(pods) < len(used.Sandboxes) { // pods of other doors or instances
		return fmt.Errorf("%w (bulkhead ps --all-instances -o wide shows sandboxes)", err)
	}
	return errclass.New(image.ErrInUse, "remove image %s: it is in use by pod %s (bulkhead rm -f %s removes the pod)",
		ref, strings.Join(pods, ", "), strings.Join(names, " "))
}

func (s *Service) login(r *http.Request, req api.LoginRequest) (any, error) {
	getenv, err := calls.Environment(r, s.Environment)
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

func progress(name string, g image.Progress) *api.Progress {
	state := "pulling"
	if g.Done {
		state = "done"
	}
	return &api.Progress{Image: name, Blob: g.Digest, Total: g.Total, Done: g.Offset, State: state}
}

// storeFor returns the image store for a request: in the environment of its command, or of the instance that it
// names.
func (s *Service) storeFor(r *http.Request) (*image.Store, error) {
	getenv, err := calls.Environment(r, s.Environment)
	if err != nil {
		return nil, err
	}
	images := s.Store.With(getenv)
	switch instance := r.URL.Query().Get("for"); {
	case instance == "":
		return images, nil
	case !slices.Contains(api.ImageUsers, instance):
		return nil, errclass.New(errdefs.ErrInvalidArgument,
			"invalid: the user of images %.80q must be one of %s", instance, strings.Join(api.ImageUsers, ", "))
	default:
		return images.For(instance)
	}
}

// inspect returns all details of an image.
func (s *Service) inspect(r *http.Request) (any, error) {
	images, err := s.storeFor(r)
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
