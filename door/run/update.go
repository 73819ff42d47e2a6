package run

import (
	"context"
	"fmt"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// update gives a pod other versions of its ConfigMaps and Secrets, and one of
// its containers other resources.
func (e *entry) update(ctx context.Context, req api.UpdateRequest) error {
	if err := e.updateObjects(req); err != nil {
		return err
	}
	if len(req.Limits)+len(req.Requests) == 0 {
		return nil
	}
	return e.Resize(ctx, req.Container, req.Limits, req.Requests)
}

func (e *entry) updateObjects(req api.UpdateRequest) error {
	found, err := read(req.Manifests, podapi.Options{})
	if err != nil {
		return err
	}
	all := objectsOf(found)
	if pods := found.Pods; len(pods) > 0 {
		return errclass.With(api.ErrInvalid, fmt.Errorf("pod %s: a pod that is there cannot be replaced: give ConfigMaps and Secrets alone", pods[0].Name))
	}
	for _, object := range all.ConfigMaps {
		if object.Namespace != e.Given().Namespace {
			return errclass.With(api.ErrInvalid, fmt.Errorf("configmap %s/%s is in another namespace than pod %s", object.Namespace, object.Name, e.Key()))
		}
	}
	for _, object := range all.Secrets {
		if object.Namespace != e.Given().Namespace {
			return errclass.With(api.ErrInvalid, fmt.Errorf("secret %s/%s is in another namespace than pod %s", object.Namespace, object.Name, e.Key()))
		}
	}
	if all.Empty() {
		return nil
	}
	return e.PutObjects(all)
}
