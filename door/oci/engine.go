package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/remote/client"
	run "github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/oci/convert"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// doorName is this door's name at the engine.
const doorName = "oci"

// ask calls the user's engine, and starts one if none runs. It calls do again if the engine ends instead of answering.
func (d *Door) ask(ctx context.Context, do func(enginev1.EngineClient) error) error {
	return askWith(ctx, run.StartDetached, do)
}

// askWith is ask with another way to start an engine. If none runs, it fails without start.
func askWith(ctx context.Context, start run.Starter, do func(enginev1.EngineClient) error) error {
	roots, err := dirs.Default(dirs.Run)
	if err != nil {
		return err
	}
	return client.New(roots, start).Do(ctx, do)
}

// key returns the engine's key of a container's pod. Two roots may have containers with the same id.
func (d *Door) key(id string) string {
	sum := sha256.Sum256([]byte(d.o.Root))
	return hex.EncodeToString(sum[:6]) + "/" + id
}

// startRequest asks for the pod of a converted specification.
func (d *Door) startRequest(p *convert.Plan) *enginev1.StartRequest {
	return &enginev1.StartRequest{
		Door: doorName, Key: d.key(p.ID), Hostname: p.Hostname, Sysctls: p.Sysctls,
		Identity: &enginev1.Identity{Name: p.ID, Namespace: doorName},
		Size:     size(p.Size),
	}
}

func size(d sizing.Demand) *enginev1.Size {
	return &enginev1.Size{
		CpuQuota: d.Quota, CpuPeriod: d.Period, CpuShares: d.Shares, MemoryLimit: d.MemoryLimit, HugePages: d.HugePages,
		Unstated: d.Unstated,
	}
}

// remove removes a container's pod, with its VM.
func (d *Door) remove(ctx context.Context, key, id string) error {
	return d.ask(ctx, func(e enginev1.EngineClient) error {
		if id == "" {
			found, err := e.Adopt(ctx, &enginev1.AdoptRequest{Door: doorName, Key: key})
			if notFound(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("find the pod: %w", err)
			}
			id = found.GetPod().GetId()
		}
		if _, err := e.Remove(ctx, &enginev1.RemoveRequest{Door: doorName, Id: id}); err != nil {
			return fmt.Errorf("remove the pod: %w", err)
		}
		return nil
	})
}
