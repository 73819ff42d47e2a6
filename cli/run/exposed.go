package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/progress"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// exposed returns the ports that an image exposes, in the form of -p. It pulls a missing image.
func exposed(ctx context.Context, a *app.App, image string, bars *progress.Bars) ([]string, error) {
	var detail api.ImageDetail
	look := func() error { return a.Client.Call(ctx, "GET", "/v1/images/"+url.PathEscape(image), nil, nil, &detail) }
	err := look()
	if errors.Is(err, errdefs.ErrNotFound) {
		err = a.Client.Stream(ctx, "POST", "/v1/images/pull", nil, api.PullRequest{Image: image}, func(m api.Message) error {
			if m.Progress != nil {
				bars.Update(*m.Progress)
			}
			return nil
		})
		if err == nil {
			err = look()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--publish-all: %w", err)
	}
	return portsOf(image, detail.Config)
}

// portsOf reads the exposed ports from an image's configuration.
func portsOf(image string, raw json.RawMessage) (ports []string, err error) {
	var c struct {
		Config struct{ ExposedPorts map[string]struct{} }
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("--publish-all: the configuration of image %s: %w", image, err)
	}
	for port := range c.Config.ExposedPorts {
		ports = append(ports, port)
	}
	if len(ports) == 0 {
		return nil, fmt.Errorf("--publish-all: image %s exposes no port; use -p PORT", image)
	}
	slices.Sort(ports)
	return ports, nil
}
