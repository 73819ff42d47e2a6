package service

import (
	"context"
	"encoding/json"
	"errors"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// Rehearse begins the rehearsal of a member of a pool.
func (e extension) Rehearse(ctx context.Context, r *shimv1.RehearseRequest) (*shimv1.RehearseResponse, error) {
	var rehearsal sandbox.Rehearsal
	if err := json.Unmarshal(r.Options, &rehearsal); err != nil {
		return nil, invalid("rehearse: read the options: %v", err)
	}
	scratch, err := e.o.Files.Take(layout.Scratch)
	if err != nil {
		return nil, toStatus(err)
	}
	image, err := e.o.Files.Take(layout.RehearsalImage)
	if err != nil {
		return nil, toStatus(errors.Join(err, scratch.Close()))
	}
	if err := e.o.Sandbox.Rehearse(ctx, rehearsal, sandbox.RehearsalFiles{Scratch: scratch, Image: image}); err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.RehearseResponse{}, nil
}
