// Package volumes answers the calls about volumes with names, and creates the volumes that new pods need.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/door/run/naming"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Service answers the calls. It is safe for concurrent use.
type Service struct {
	Engine  *engine.Engine
	Pods    *manager.Manager
	Volumes *named.Store
	// naming coordinates adding pods that name volumes with removing unnamed volumes.
	naming naming.Names
}

// Register adds the calls.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/volumes", calls.Answered(s.list))
	mux.HandleFunc("POST /v1/volumes", calls.With(s.create))
	mux.HandleFunc("GET /v1/volumes/{name}", calls.Answered(s.inspect))
	mux.HandleFunc("DELETE /v1/volumes/{name}", calls.Answered(s.remove))
	mux.HandleFunc("POST /v1/volumes/{name}/resize", calls.With(s.resize))
	mux.HandleFunc("POST /v1/prune/volumes", calls.Answered(s.prune))
}

func (s *Service) list(r *http.Request) (any, error) {
	all, err := s.Volumes.List()
	if err != nil {
		return nil, err
	}
	list, users := []api.Volume{}, s.users()
	for _, v := range all {
		list = append(list, s.describe(r.Context(), v, users))
	}
	return list, nil
}

func (s *Service) inspect(r *http.Request) (any, error) {
	v, err := s.Volumes.Get(r.PathValue("name"))
	if err != nil {
		return nil, listed(err)
	}
	return s.describe(r.Context(), v, s.users()), nil
}

func (s *Service) describe(ctx context.Context, v named.Volume, users map[string][]*manager.Pod) api.Volume {
	out := api.Volume{
		Name: v.Name, Kind: string(v.Kind), Size: v.Bytes, Used: s.Volumes.Used(ctx, v), Created: v.Created,
		Labels: v.Labels, Claim: v.Claim, AccessModes: v.Modes, Damage: v.Damage, Path: s.Volumes.Dir(v.Name), Pods: []string{},
	}
	if v.Kind == named.Shared {
		out.Path = s.Volumes.Files(v.Name)
	}
	for _, e := range users[v.Name] {
		out.Pods = append(out.Pods, e.Key())
	}
	return out
}

// users returns the pods that name each volume. Ended pods count, because they can be started again.
func (s *Service) users() map[string][]*manager.Pod {
	users := map[string][]*manager.Pod{}
	for _, e := range s.Pods.All() {
		for _, name := range volume.Names(e.Spec()) {
			users[name] = append(users[name], e)
		}
	}
	return users
}

func (s *Service) create(r *http.Request, req api.VolumeRequest) (any, error) {
	v := named.Volume{Name: req.Name, Kind: named.Disk, Labels: req.Labels}
	switch {
	case req.Shared && req.Block:
		return nil, errclass.New(errdefs.ErrInvalidArgument, "volume %s: it cannot be both shared and a block device", req.Name)
	case req.Shared:
		v.Kind = named.Shared
	case req.Block:
		v.Kind = named.Block
	}
	if req.Size != "" {
		size, err := bytesOf(req.Size)
		if err != nil {
			return nil, err
		}
		v.Bytes = size
	}
	made, err := s.Volumes.Create(r.Context(), v)
	if err != nil {
		return nil, err
	}
	return s.describe(r.Context(), made, nil), nil
}

// bytesOf parses a size in the API's form, such as 10Gi.
func bytesOf(size string) (int64, error) {
	q, err := resource.ParseQuantity(size)
	if err != nil || q.Sign() <= 0 {
		return 0, errclass.New(errdefs.ErrInvalidArgument, "size %.64q: must be a number of bytes, such as 10Gi", size)
	}
	return q.Value(), nil
}

func (s *Service) resize(r *http.Request, req api.VolumeRequest) (any, error) {
	size, err := bytesOf(req.Size)
	if err != nil {
		return nil, err
	}
	v, err := s.Engine.GrowVolume(r.Context(), r.PathValue("name"), size)
	if err != nil {
		return nil, listed(err)
	}
	return s.describe(r.Context(), v, s.users()), nil
}

// remove removes a volume that no pod names. With force it first removes the pods that name it.
func (s *Service) remove(r *http.Request) (any, error) {
	name, force := r.PathValue("name"), r.URL.Query().Get("force") == "true"
	if force {
		for _, e := range s.users()[name] {
			if err := e.Remove(r.Context(), true); err != nil {
				return nil, err
			}
		}
	}
	rest, err := s.unnamed(r.Context(), name)
	switch {
	case err == nil:
		return api.Result{}, rest(r.Context())
	case force && errors.Is(err, named.ErrNotFound):
		return api.Result{}, nil
	}
	return nil, listed(err)
}

// unnamed removes a volume that no pod names. rest deletes its contents, and new pods do not wait for that.
func (s *Service) unnamed(ctx context.Context, name string) (rest func(context.Context) error, err error) {
	done, err := s.naming.Remove(ctx, name, func() error {
		if users := s.users()[name]; len(users) > 0 {
			return usedBy(name, users)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer done()
	return s.Volumes.Remove(ctx, name)
}

func usedBy(name string, users []*manager.Pod) error {
	var pods []string
	for _, e := range users {
		pods = append(pods, e.Key())
	}
	slices.Sort(pods)
	err := fmt.Errorf("volume %s is used by pod %s: remove it first, or use --force", name, strings.Join(pods, ", "))
	return errclass.With(errdefs.ErrConflict, err)
}

func (s *Service) prune(r *http.Request) (any, error) {
	var p api.Pruned
	err := s.Prune(r.Context(), &p)
	return p, err
}

// Prune removes as many volumes that no pod names as possible.
func (s *Service) Prune(ctx context.Context, p *api.Pruned) error {
	all, err := s.Volumes.List()
	if err != nil {
		return err
	}
	users := s.users()
	for _, v := range all {
		if len(users[v.Name]) > 0 {
			continue
		}
		used := s.Volumes.Used(ctx, v)
		rest, err := s.unnamed(ctx, v.Name)
		switch {
		case errors.Is(err, errdefs.ErrConflict), errors.Is(err, named.ErrInUse), errors.Is(err, named.ErrNotFound):
			continue
		case err == nil:
			err = rest(ctx)
		}
		if err != nil {
			if err := p.Skip(ctx, err); err != nil {
				return err
			}
			continue
		}
		p.Volumes, p.Bytes = append(p.Volumes, v.Name), p.Bytes+used
	}
	return nil
}

// listed adds a hint to the error for a missing volume.
func listed(err error) error {
	if errors.Is(err, named.ErrNotFound) {
		err = fmt.Errorf("%w: bulkhead volume ls lists the volumes", err)
	}
	return err
}

// Share returns the disk usage of all volumes.
func (s *Service) Share(ctx context.Context) (api.DiskShare, error) {
	share := api.DiskShare{Type: "Volumes"}
	all, err := s.Volumes.List()
	users := s.users()
	for _, v := range all {
		share.Add(s.Volumes.Used(ctx, v), len(users[v.Name]) > 0)
	}
	return share, err
}
