package convert

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci/fields"
)

// hooks converts the hooks. The guest's specification has none.
func (c *conversion) hooks() error {
	h := c.spec.Hooks
	if h == nil {
		return nil
	}
	c.plan.Hooks = containerv1.Hooks{}
	for _, at := range []struct {
		point containerv1.Point
		list  []specs.Hook
	}{
		{containerv1.Prestart, h.Prestart}, //nolint:staticcheck // docker's clients still use it
		{containerv1.CreateRuntime, h.CreateRuntime},
		{containerv1.CreateContainer, h.CreateContainer},
		{containerv1.StartContainer, h.StartContainer},
		{containerv1.Poststart, h.Poststart},
		{containerv1.Poststop, h.Poststop},
	} {
		for i, one := range at.list {
			hook, err := convertHook(fmt.Sprintf("hooks.%s[%d]", at.point, i), one)
			if err != nil {
				return err
			}
			if at.point == containerv1.StartContainer {
				c.plan.StartContainer = append(c.plan.StartContainer, hook)
				continue
			}
			c.plan.Hooks[at.point] = append(c.plan.Hooks[at.point], hook)
		}
	}
	return nil
}

func convertHook(field string, h specs.Hook) (containerv1.Hook, error) {
	hook := containerv1.Hook{Path: h.Path, Args: fields.Copy(h.Args), Env: fields.Copy(h.Env)}
	if !filepath.IsAbs(h.Path) {
		return hook, invalid(field+".path", "%.200q must be absolute", h.Path)
	}
	if h.Timeout != nil {
		const most = int(1<<63-1) / int(time.Second)
		if *h.Timeout <= 0 || *h.Timeout > most {
			return hook, invalid(field+".timeout", "%d seconds", *h.Timeout)
		}
		hook.Timeout = time.Duration(*h.Timeout) * time.Second
	}
	return hook, nil
}
