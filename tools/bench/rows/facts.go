package rows

import (
	"context"
)

// Facts adds the versions of the programs and the accelerator to the report.
func (b *Bench) Facts(ctx context.Context) error {
	for i := range b.Builds {
		build := &b.Builds[i]
		s, err := b.site(ctx, build, false)
		if err != nil {
			return err
		}
		v, err := s.Version(ctx)
		if err != nil {
			return err
		}
		f := &b.Report.Facts
		if build.Mark != "" {
			f.Version("against", v.Bulkhead)
			continue
		}
		f.Version("bulkhead", v.Bulkhead)
		f.Version("QEMU", v.QEMU)
		f.Version("guest kernel", v.Kernel)
		f.Version("crun", v.Crun)
		f.Version("go", v.Go)
		var templates []struct {
			Accel string `json:"accel"`
		}
		if err := s.JSON(ctx, &templates, "template", "ls"); err != nil {
			return err
		}
		for _, t := range templates {
			f.Accel = t.Accel
		}
	}
	return nil
}
