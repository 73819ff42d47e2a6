package rows

import (
	"context"
	"fmt"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// rival runs pods of the same image: a build of Bulkhead or a baseline. Its functions are safe for concurrent use.
type rival struct {
	name    string // of its rows, empty for the first build
	what    string // how it runs pods
	absent  string // why it cannot be measured
	site    *site.Site
	account *account.Account
	// once runs a pod of true until it ends. Concurrent calls have different numbers.
	once func(ctx context.Context, number int) error
	// start starts n sleeping pods at once and returns the time until all run. end removes them.
	start func(ctx context.Context, n int) (time.Duration, error)
	end   func(ctx context.Context, n int) error
}

// rivals returns all available rivals, the builds first.
func (b *Bench) rivals(ctx context.Context) ([]rival, error) {
	var all []rival
	for i := range b.Builds {
		s, err := b.site(ctx, &b.Builds[i], false)
		if err != nil {
			return nil, err
		}
		r := ours(s)
		r.name = b.Builds[i].Mark
		all = append(all, r)
	}
	p, absent, err := b.baseline(ctx)
	if err != nil {
		return nil, err
	}
	r := inPodman(p, absent)
	r.site = all[0].site
	all = append(all, r)
	c, absent, err := b.kubelets(ctx)
	if err != nil {
		return nil, err
	}
	r = inContainerd(c, absent)
	r.site = all[0].site
	return append(all, r), nil
}

// rivalRow adds a rival's row to the report.
func (b *Bench) rivalRow(r report.Row, who *rival) *report.Row {
	r.Absent = who.absent
	r.What = who.what + ": " + r.What
	if who.name != "" {
		r.Name += " (" + who.name + ")"
		r.What = who.what + ": the same"
		r.Aim = 0
	}
	return b.row(r, nil)
}

// ours is the rival bulkhead run.
func ours(s *site.Site) rival {
	return rival{
		what: "bulkhead run", site: s, account: s.Account,
		once: func(ctx context.Context, number int) error {
			name := fmt.Sprint("once", number)
			file, err := s.Write(name, site.Manifest(name, Small, "true"))
			if err == nil {
				_, err = s.Run(ctx, "run", "--rm", "--quiet", file)
			}
			return err
		},
		start: func(ctx context.Context, n int) (time.Duration, error) {
			var all []string
			for _, name := range site.Names("burst", n) {
				all = append(all, site.Manifest(name, Small, "sleep", "100000"))
			}
			file, err := s.Write("burst", all...)
			if err != nil {
				return 0, err
			}
			r, err := s.Start(ctx, file)
			return r.Took, err
		},
		end: func(ctx context.Context, n int) error { return s.Remove(ctx, site.Names("burst", n)...) },
	}
}
