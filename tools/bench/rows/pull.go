package rows

import (
	"context"
	"fmt"

	"github.com/bulkhead-project/bulkhead/tools/bench/payload"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

// payloadRegistry serves the large image. It is started on first use.
func (b *Bench) payloadRegistry(ctx context.Context) (*payload.Registry, error) {
	if b.registry != nil {
		return b.registry, nil
	}
	b.Progress("make an image of 200 MB")
	img, err := payload.Image(ctx, b.Reader, payload.MB200)
	if err != nil {
		return nil, err
	}
	b.registry, err = payload.Serve(ctx, img)
	return b.registry, err
}

func pull(ctx context.Context, b *Bench) error {
	registry, err := b.payloadRegistry(ctx)
	if err != nil {
		return err
	}
	var all []contender
	for i := range b.Builds {
		build := &b.Builds[i]
		row := b.row(report.Row{
			Group: "pull", Name: "pull and convert 200 MB", Unit: "ms",
			What: fmt.Sprintf(
				"bulkhead image pull of 4 layers, %.0f MB packed, from a registry in the benchmark's process on loopback; removed before each",
				mb(registry.Packed),
			),
		}, build)
		s, err := b.site(ctx, build, false)
		if err != nil {
			return err
		}
		there := false
		all = append(all, contender{
			row: row,
			prepare: func(ctx context.Context) error {
				if there {
					if _, err := s.Run(ctx, "image", "rm", registry.Reference); err != nil {
						return err
					}
				}
				return b.awaitIdle(ctx, s)
			},
			sample: func(ctx context.Context) error {
				r, err := s.Run(ctx, "image", "pull", "--quiet", registry.Reference)
				if err == nil {
					there = true
					row.Add(ms(r.Took))
				}
				return err
			},
		})
	}
	return b.pair(ctx, b.Runs, all...)
}
