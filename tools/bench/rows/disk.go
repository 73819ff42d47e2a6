package rows

import (
	"context"
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/tools/bench/payload"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

const (
	scratchDir   = "/scratch"
	scratchFile  = scratchDir + "/big"
	seqBlock     = 1 << 20
	randomBlock  = 4096
	randomBlocks = 2000
)

func disk(ctx context.Context, b *Bench) error {
	registry, err := b.payloadRegistry(ctx)
	if err != nil {
		return err
	}
	for i := range b.Builds {
		if err := b.diskOf(ctx, &b.Builds[i], registry.Reference); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) diskOf(ctx context.Context, build *Build, image string) error {
	const how = ", with O_DIRECT in a container, timed there; the host's page cache is warm"
	var all []contender
	s, err := b.site(ctx, build, false)
	if err != nil {
		return err
	}
	for _, d := range []struct{ name, file, what string }{
		{"image disk", "/" + payload.BigFile, "the image's file of 64 MiB (EROFS, overlay)"},
		{"scratch disk", scratchFile, "a file of 64 MiB in an emptyDir"},
	} {
		all = append(all,
			b.reading(s, b.row(report.Row{
				Group: "disk", Name: d.name + ", sequential", Unit: "MB/s", Higher: true,
				What: fmt.Sprintf("%s in order, %d KiB at a time%s", d.what, seqBlock>>10, how),
			}, build), "seq", d.file, fmt.Sprint(seqBlock)),
			b.reading(s, b.row(report.Row{
				Group: "disk", Name: d.name + ", random", Unit: "reads/s", Higher: true,
				What: fmt.Sprintf("%d reads of %d KiB at random in the same file, one after the other%s", randomBlocks, randomBlock>>10, how),
			}, build), "random", d.file, fmt.Sprint(randomBlock), fmt.Sprint(randomBlocks)))
	}
	pod, err := s.Write("disk", site.WithScratch("disk", image, scratchDir, "sleep", "100000"))
	if err != nil {
		return err
	}
	if _, err := s.Start(ctx, pod); err != nil {
		return err
	}
	if _, err := s.Run(ctx, "exec", "disk", "--", "/"+payload.Reader, "make", scratchFile, "64"); err != nil {
		return err
	}
	if err := b.awaitIdle(ctx, s); err != nil {
		return err
	}
	if err := b.pair(ctx, b.Runs, all...); err != nil {
		return err
	}
	return s.Remove(ctx, "disk")
}

// reading runs the reader in the pod "disk". It samples megabytes per second of large blocks, or reads per second
// of small ones.
func (b *Bench) reading(s *site.Site, row *report.Row, args ...string) contender {
	return contender{row: row, sample: func(ctx context.Context) error {
		r, err := s.Run(ctx, append([]string{"exec", "disk", "--", "/" + payload.Reader}, args...)...)
		if err != nil {
			return err
		}
		var bytes, nanoseconds float64
		if _, err := fmt.Sscan(strings.TrimSpace(r.Out), &bytes, &nanoseconds); err != nil || nanoseconds <= 0 {
			return fmt.Errorf("the reader printed %q: %w", r.Out, err)
		}
		if args[0] == "seq" {
			row.Add(bytes / 1e6 / (nanoseconds / 1e9))
		} else {
			row.Add(bytes / randomBlock / (nanoseconds / 1e9))
		}
		return nil
	}}
}
