package run

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
	"github.com/bulkhead-project/bulkhead/door/run/naming"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/volume"
)

func (s *server) listVolumes(r *http.Request) (any, error) {
	all, err := s.volumes.List()
	if err != nil {
		return nil, err
	}
	list, users := []api.Volume{}, s.volumeUsers()
	for _, v := range all {
		list = append(list, s.apiVolume(r.Context(), v, users))
	}
	return list, nil
}

func (s *server) inspectVolume(r *http.Request) (any, error) {
	v, err := s.volumes.Get(r.PathValue("name"))
	if err != nil {
		return nil, listedVolume(err)
	}
	return s.apiVolume(r.Context(), v, s.volumeUsers()), nil
}

func (s *server) apiVolume(ctx context.Context, v named.Volume, users map[string][]*entry) api.Volume {
	out := api.Volume{
		Name: v.Name, Kind: string(v.Kind), Size: v.Bytes, Used: s.volumes.Used(ctx, v), Created: v.Created,
		Labels: v.Labels, Claim: v.Claim, AccessModes: v.Modes, Damage: v.Damage, Path: s.volumes.Dir(v.Name), Pods: []string{},
	}
	if v.Kind == named.Shared {
		out.Path = s.volumes.Files(v.Name)
	}
	for _, e := range users[v.Name] {
		out.Pods = append(out.Pods, e.Key())
	}
	return out
}

// volumeUsers returns the pods that name each volume. Ended pods count, because they can be started again.
func (s *server) volumeUsers() map[string][]*entry {
	users := map[string][]*entry{}
	for _, e := range s.all() {
		for _, name := range volume.Names(e.Spec()) {
			users[name] = append(users[name], e)
		}
	}
	return users
}

func (s *server) createVolume(r *http.Request) (any, error) {
	req, err := decode[api.VolumeRequest](r)
	if err != nil {
		return nil, err
	}
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
		if v.Bytes, err = bytesOf(req.Size); err != nil {
			return nil, err
		}
	}
	made, err := s.volumes.Create(r.Context(), v)
	if err != nil {
		return nil, err
	}
	return s.apiVolume(r.Context(), made, nil), nil
}

// bytesOf parses a size in the API's form, such as 10Gi.
func bytesOf(size string) (int64, error) {
	q, err := resource.ParseQuantity(size)
	if err != nil || q.Sign() <= 0 {
		return 0, errclass.New(errdefs.ErrInvalidArgument, "size %.64q: must be a number of bytes, such as 10Gi", size)
	}
	return q.Value(), nil
}

func (s *server) resizeVolume(r *http.Request) (any, error) {
	req, err := decode[api.VolumeRequest](r)
	if err != nil {
		return nil, err
	}
	size, err := bytesOf(req.Size)
	if err != nil {
		return nil, err
	}
	v, err := s.grow(r.Context(), r.PathValue("name"), size)
	if err != nil {
		return nil, listedVolume(err)
	}
	return s.apiVolume(r.Context(), v, s.volumeUsers()), nil
}

// grow makes a volume larger.
func (s *server) grow(ctx context.Context, name string, size int64) (named.Volume, error) {
	return s.engine.GrowVolume(ctx, name, size)
}

// removeVolume removes a volume that no pod names. With force it first removes the pods that name it.
func (s *server) removeVolume(r *http.Request) (any, error) {
	name, force := r.PathValue("name"), r.URL.Query().Get("force") == "true"
	if force {
		for _, e := range s.volumeUsers()[name] {
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
	return nil, listedVolume(err)
}

// unnamed removes a volume that no pod names. rest deletes its contents, and new pods do not wait for that.
func (s *server) unnamed(ctx context.Context, name string) (rest func(context.Context) error, err error) {
	done, err := s.naming.Remove(ctx, name, func() error {
		if users := s.volumeUsers()[name]; len(users) > 0 {
			return usedBy(name, users)
		}
		return nil
	})
	if errors.Is(err, naming.ErrNamed) {
		err = errclass.With(errdefs.ErrConflict, err)
	}
	if err != nil {
		return nil, err
	}
	defer done()
	return s.volumes.Remove(ctx, name)
}

func usedBy(name string, users []*entry) error {
	var pods []string
	for _, e := range users {
		pods = append(pods, e.Key())
	}
	slices.Sort(pods)
	err := fmt.Errorf("volume %s is used by pod %s: remove it first, or use --force", name, strings.Join(pods, ", "))
	return errclass.With(errdefs.ErrConflict, err)
}

// pruneVolumes removes the volumes that no pod names.
func (s *server) pruneVolumes(r *http.Request) (any, error) {
	var p api.Pruned
	err := s.collectVolumes(r.Context(), &p)
	return p, err
}

// collectVolumes removes as many volumes that no pod names as possible.
func (s *server) collectVolumes(ctx context.Context, p *api.Pruned) error {
	all, err := s.volumes.List()
	if err != nil {
		return err
	}
	users := s.volumeUsers()
	for _, v := range all {
		if len(users[v.Name]) > 0 {
			continue
		}
		used := s.volumes.Used(ctx, v)
		rest, err := s.unnamed(ctx, v.Name)
		switch {
		case errors.Is(err, errdefs.ErrConflict), errors.Is(err, named.ErrInUse), errors.Is(err, named.ErrNotFound):
			continue
		case err == nil:
			err = rest(ctx)
		}
		if err != nil {
			if err := stays(ctx, p, err); err != nil {
				return err
			}
			continue
		}
		p.Volumes, p.Bytes = append(p.Volumes, v.Name), p.Bytes+used
	}
	return nil
}

// listedVolume adds a hint to the error for a missing volume.
func listedVolume(err error) error {
	if errors.Is(err, named.ErrNotFound) {
		err = fmt.Errorf("%w: bulkhead volume ls lists the volumes", err)
	}
	return err
}
